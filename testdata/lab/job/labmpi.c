// labmpi is the job of the lab's tests: every rank sends to the next one round
// the ring, small and large messages, and checks what arrives.
//
//	labmpi [ROUNDS] [BYTES] [SECONDS]
//
// Rank 0 prints one line at the start and one at the end.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
	int rounds = argc > 1 ? atoi(argv[1]) : 20, bytes = argc > 2 ? atoi(argv[2]) : 65536;
	double seconds = argc > 3 ? atof(argv[3]) : 0;
	int rank, size, bad = 0, total = 0;
	char host[256];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	gethostname(host, sizeof host);
	unsigned char *out = malloc(bytes), *in = malloc(bytes);
	double start = MPI_Wtime();
	if (rank == 0) {
		printf("labmpi: %d ranks, %d bytes, first on %s\n", size, bytes, host);
		fflush(stdout);
	}
	int more = 1;
	for (int i = 0; more; i++) {
		for (int k = 0; k < bytes; k++)
			out[k] = (unsigned char)(rank + i + k);
		int to = (rank + 1) % size, from = (rank + size - 1) % size;
		MPI_Sendrecv(out, bytes, MPI_BYTE, to, i, in, bytes, MPI_BYTE, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int k = 0; k < bytes; k++)
			bad += in[k] != (unsigned char)(from + i + k);
		more = seconds > 0 ? MPI_Wtime() - start < seconds : i + 1 < rounds;
		MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	MPI_Allreduce(&bad, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("labmpi: done, %d wrong bytes\n", total);
	MPI_Finalize();
	return total != 0;
}
