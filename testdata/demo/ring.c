/* A small MPI job that proves it ran: a token goes once around the ring, then
 * an allreduce is checked against what it must be. One line per rank; exit
 * status 1 when anything is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 16 };

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rank, size, len, bad = 0;
	char host[MPI_MAX_PROCESSOR_NAME];
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Get_processor_name(host, &len);

	/* The ring: every rank adds its number plus one. */
	long token = 0;
	double t0 = MPI_Wtime();
	if (rank == 0) {
		token = 1;
		if (size > 1) {
			MPI_Send(&token, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD);
			MPI_Recv(&token, 1, MPI_LONG, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
		if (token != (long)size * (size + 1) / 2)
			bad = 1;
	} else {
		MPI_Recv(&token, 1, MPI_LONG, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		token += rank + 1;
		MPI_Send(&token, 1, MPI_LONG, (rank + 1) % size, 0, MPI_COMM_WORLD);
	}
	double ring = MPI_Wtime() - t0;

	/* The allreduce: element i is the sum over ranks of rank + i. */
	double *v = malloc(COUNT * sizeof *v);
	if (!v)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (int i = 0; i < COUNT; i++)
		v[i] = rank + i;
	t0 = MPI_Wtime();
	MPI_Allreduce(MPI_IN_PLACE, v, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	double all = MPI_Wtime() - t0;
	for (int i = 0; i < COUNT; i++)
		if (v[i] != (double)size * (size - 1) / 2 + (double)size * i)
			bad = 1;
	free(v);

	/* In order, so that the output can be compared. */
	for (int r = 0; r < size; r++) {
		if (r == rank) {
			printf("rank %d of %d on %s: ring %.0f us, allreduce of 512 KiB %.0f us, %s\n",
			       rank, size, host, ring * 1e6, all * 1e6, bad ? "WRONG" : "correct");
			fflush(stdout);
		}
		MPI_Barrier(MPI_COMM_WORLD);
	}
	int any = 0;
	MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	MPI_Finalize();
	return any;
}
