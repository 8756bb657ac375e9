// Package lines makes up what jobs print, for benchmarks and for tests that need
// a great deal of it: ordinary output, and what NCCL says while it connects, in
// the forms of its releases 2.19 to 2.28.
package lines

import (
	"bytes"
	"fmt"
)

// Ordinary appends the i-th piece of output of a solver and of a training loop,
// about 700 bytes. Neither says anything about a network.
func Ordinary(b *bytes.Buffer, i int) {
	fmt.Fprintf(b, "Time = %d.%03d\n\n", i/1000, i%1000)
	for j, f := range [...]string{"Ux", "Uy", "Uz"} {
		fmt.Fprintf(b, "smoothSolver:  Solving for %s, Initial residual = 0.0%d, Final residual = %d.%de-06, No Iterations %d\n", f, 31415+i%977+j, 1+i%8, i%1000, 2+i%3)
	}
	fmt.Fprintf(b, "GAMG:  Solving for p, Initial residual = 0.00%d, Final residual = 4.%de-05, No Iterations 7\n", i%977, i%1000)
	fmt.Fprintf(b, "time step continuity errors : sum local = 1.%de-07, global = -2.%de-09, cumulative = 3.1e-06\n", i%1000, i%991)
	fmt.Fprintf(b, "ExecutionTime = %d.%02d s  ClockTime = %d s\n\n", i/50, i%100, i/50)
	fmt.Fprintf(b, "[2026-11-21 04:%02d:%02d,%03d] [INFO] [engine.py:%d] step=%d, loss=2.%04d, lr=3.0e-04, grad_norm=%d.%03d, tokens_per_sec=%d\n", i/60%60, i%60, i%1000, 300+i%9, i, i%9973, i%7, i%1000, 41000+i%512)
	fmt.Fprintf(b, " iteration %8d/  500000 | consumed samples: %12d | elapsed time per iteration (ms): %d.%d | learning rate: 1.500E-04 | global batch size:  1024 | lm loss: %d.%06dE+00 |\n", i, i*1024, 1800+i%97, i%10, 2+i%3, i%1000003)
}

// Ranks, Nodes and Channels of the job that NCCL makes up.
const (
	Ranks    = 16
	Nodes    = 2
	Channels = 16
)

// versions and what their lines look like (NCCL src/init.cc, transport/net.cc
// and graph/*.cc of each tag).
var versions = [...]struct {
	text       string
	fn         string // what the Init lines begin with
	noDevice   string // how the network was assigned
	rings      string // behind "Connected all rings"
	gdrForPair bool
}{
	{"2.19.3+cuda12.3", "comm ", "", "", true},
	{"2.21.5+cuda12.4", "ncclCommInitRank comm ", "", "", true},
	{"2.23.4+cuda12.6", "ncclCommInitRankConfig comm ", "", "", true},
	{"2.26.2+cuda12.8", "ncclCommInitRankConfig comm ", "", ", use ring PXN 0 GDR 1", true},
	{"2.28.9+cuda12.9", "ncclCommInitRankConfig comm ", "Assigned NET plugin IB to comm", ", use ring PXN 0 GDR 1", false},
}

// NCCL appends what the ranks of a job on two nodes say while they set up their
// i-th communicator, line by line in turn, as on one shared standard output:
// about 270 KB, nine tenths of it channels, rings and trees.
func NCCL(b *bytes.Buffer, i int) {
	v := versions[i%len(versions)]
	say := func(r int, format string, args ...any) {
		fmt.Fprintf(b, "gpu%02d:%d:%d [%d] NCCL INFO ", r*Nodes/Ranks, 41000+r, 42000+r, r%(Ranks/Nodes))
		fmt.Fprintf(b, format, args...)
		b.WriteByte('\n')
	}
	each := func(line func(r int)) {
		for r := range Ranks {
			line(r)
		}
	}
	local := Ranks / Nodes
	if i < len(versions) {
		// A process says this once.
		each(func(r int) { say(r, "Bootstrap : Using eth0:10.0.0.%d<0>", 1+r/local) })
		each(func(r int) { say(r, "cudaDriverVersion 12080") })
		each(func(r int) { say(r, "NCCL version %s", versions[0].text) })
		each(func(r int) { say(r, "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.") })
		each(func(r int) {
			say(r, "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [2]mlx5_2:1/RoCE [3]mlx5_3:1/RoCE [RO]; OOB eth0:10.0.0.%d<0>", 1+r/local)
		})
	}
	if v.noDevice != "" {
		each(func(r int) { say(r, "%s", v.noDevice) })
	}
	each(func(r int) { say(r, "Using network IB") })
	busID := func(r int) int { return 0x1b000 + r%local*0x10000 }
	each(func(r int) {
		say(r, "%s0x%012x rank %d nranks %d cudaDev %d nvmlDev %d busId %x commId 0x%016x - Init START", v.fn, 0x55d0c0000000+i*64+r, r, Ranks, r%local, r%local, busID(r), 0x9e3779b97f4a7c15^uint64(i))
	})
	each(func(r int) { say(r, "Setting affinity for GPU %d to ffffffff,00000000,ffffffff", r%local) })
	if v.gdrForPair {
		each(func(r int) {
			say(r, "GPU Direct RDMA Enabled for GPU %x / HCA %d (distance 4 <= 4), read 1", busID(r), r%4)
		})
	}
	each(func(r int) {
		say(r, "comm 0x%012x rank %d nRanks %d nNodes %d localRanks %d localRank %d MNNVL 0", 0x55d0c0000000+i*64+r, r, Ranks, Nodes, local, r%local)
	})
	for c := range Channels {
		var ring bytes.Buffer
		for k := range Ranks {
			fmt.Fprintf(&ring, " %3d", (k*5+c)%Ranks)
		}
		say(0, "Channel %02d/%02d :%s", c, Channels, ring.Bytes())
	}
	each(func(r int) {
		var trees bytes.Buffer
		for c := range Channels {
			fmt.Fprintf(&trees, "[%d] %d/-1/-1->%d->%d ", c, (r+1)%Ranks, r, r-1)
		}
		say(r, "Trees %s", trees.Bytes())
	})
	each(func(r int) { say(r, "P2P Chunksize set to 131072") })
	for c := range Channels {
		each(func(r int) {
			next, prev := (r+1)%Ranks, (r+Ranks-1)%Ranks
			switch {
			case r%local == local-1:
				say(r, "Channel %02d/0 : %d[%d] -> %d[%d] [send] via NET/IB/%d/GDRDMA", c, r, r%local, next, next%local, c%4)
			case r%local == 0:
				say(r, "Channel %02d/0 : %d[%d] -> %d[%d] [receive] via NET/IB/%d/GDRDMA", c, prev, prev%local, r, r%local, c%4)
			}
			say(r, "Channel %02d/0 : %d[%d] -> %d[%d] via P2P/CUMEM/read", c, r, r%local, next, next%local)
		})
		each(func(r int) {
			say(r, "Channel %02d/1 : %d[%d] -> %d[%d] [send] via NET/IB/%d(%d)/GDRDMA/Shared", c, r, r%local, (r+local)%Ranks, r%local, (c+r)%4, r^1)
		})
	}
	each(func(r int) { say(r, "Connected all rings%s", v.rings) })
	for c := range Channels {
		each(func(r int) {
			say(r, "Channel %02d/0 : %d[%d] -> %d[%d] via P2P/CUMEM/read", c, r, r%local, (r+Ranks-1)%Ranks, (r+Ranks-1)%Ranks%local)
		})
	}
	each(func(r int) { say(r, "Connected all trees") })
	each(func(r int) { say(r, "threadThresholds 8/8/64 | %d/8/64 | 512 | 512", Ranks*8) })
	each(func(r int) {
		say(r, "%s0x%012x rank %d nranks %d cudaDev %d nvmlDev %d busId %x commId 0x%016x - Init COMPLETE", v.fn, 0x55d0c0000000+i*64+r, r, Ranks, r%local, r%local, busID(r), 0x9e3779b97f4a7c15^uint64(i))
	})
}
