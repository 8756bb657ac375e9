package watch

import (
	"slices"
	"strings"
	"testing"
)

// lineOf puts the marks of a phrase into a line as its library writes it.
func lineOf(p phrase, lead string) string {
	return lead + "x" + strings.Join(p.marks, " … ") + " …"
}

// TestPhrases: each entry is found in a line of its library, by its own ID, and not in
// somebody's text about it.
func TestPhrases(t *testing.T) {
	const ucxLead = "[1700000000.1] [n1:3:0]  f.c:1  UCX  ERROR "
	for _, l := range []struct {
		name, lead string
		list       []phrase
	}{
		{"nccl", "n1:10:11 [0] misc/x.cc:1 NCCL WARN ", ncclPhrases},
		{"ucx", ucxLead, ucxPhrases},
		{"bare", "", barePhrases},
	} {
		for _, p := range l.list {
			if phraseText(l.list, p.id) == "" {
				t.Errorf("%s: %s has no text", l.name, p.id)
			}
			if len(p.marks) == 0 {
				continue
			}
			line := lineOf(p, l.lead)
			v := mustScan(t, line+"\n")
			if !slices.ContainsFunc(v.Events, func(e Event) bool { return e.ID == p.id }) {
				t.Errorf("%s: %q does not say %s: %s", l.name, line, p.id, digest(v))
			}
			if got := slices.Contains(v.FatalErrors, p.id); got != (p.grade == fatal || p.grade == consequence) {
				t.Errorf("%s: %q: fatal %v", l.name, line, got)
			}
			for _, about := range []string{"the page says that some day you may meet ", "# Expect: ", "If you see `", "grep -c '", "echo \"", "// "} {
				if v := mustScan(t, about+lineOf(p, "")+"\n"); len(v.FatalErrors) > 0 || len(v.Events) > 0 {
					t.Errorf("%q is somebody's text: %s", about+lineOf(p, ""), digest(v))
				}
			}
		}
	}
}

// TestSuspects: what a library may go on without is the first cause where the job ends,
// and no error where it does not.
func TestSuspects(t *testing.T) {
	const memlock = "[1.2] [n1:3:0]  ib_log.c:246  UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory. Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)\n"
	const psm = "n1:rank0: PSM3 can't open nic unit: 0 (err=23)\n[1700000000.5] n1:rank0.a.out: Unable to initialize verbs NIC /sys/class/infiniband/mana_0 (unit 0:0)\n"
	const stack = "Abort(1) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:\ncreate_vni_context(22)...: OFI endpoint open failed (ofi_init.c:22:create_vni_context:Invalid argument)\n"
	for _, c := range []struct{ name, log, fatal, sentence string }{
		{"goes on", memlock + "1    0.23\n", "", "UCX cannot use the RDMA device mlx5_0"},
		{"ends", memlock + "No components were able to be opened in the pml framework.\n", "memlock mpi-no-pml", "Failed: UCX cannot use the RDMA device mlx5_0"},
		{"the reason before the refusal", psm + stack, "psm-nic psm3-open ofi-open mpi-init", "Failed: PSM3 chose the RDMA device mana_0"},
		{"no suspect", stack, "ofi-open mpi-init", "Failed: libfabric chose a provider"},
		{"unreachable because of it", memlock + "[1.2] [n1:3:0]  select.c:438  UCX  ERROR no active messages transport to n2:7: posix/memory - Destination is unreachable, self/memory - Destination is unreachable\n", "memlock ucx-only-shared-memory", "Failed: UCX cannot use"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := mustScan(t, c.log)
			if got := strings.Join(v.FatalErrors, " "); got != c.fatal {
				t.Errorf("fatal %q, want %q", got, c.fatal)
			}
			if !strings.Contains(v.Sentence, c.sentence) {
				t.Errorf("says %q, want %q", v.Sentence, c.sentence)
			}
		})
	}
}

// TestLastError: torch announces NCCL's last warning, which stands in the next line of
// that rank.
func TestLastError(t *testing.T) {
	for _, c := range []struct{ name, log, fatal string }{
		{"plain", "ncclInternalError: Internal check failed.\nLast error:\nBootstrap : no socket interface found\n", "no-interface nccl-failed"},
		{"by rank", "[rank1]: Last error:\n[rank0]: Last error:\n[rank0]: ncclSocketInit: connecting to address  with family 1234 is neither AF_INET(2) nor AF_INET6(10)\n", "socket-family"},
		{"another rank between", "[rank0]: Last error:\n[rank1]:   File \"train.py\", line 3\n[rank0]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 5000\n", "duplicate-gpu"},
		{"log collector's time", "2026-11-22T01:02:03.1Z Last error:\n2026-11-22T01:02:03.2Z Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)\n", "shm-full"},
		{"tee of tee", "[7] [rank0]:Last error:\n[7] [rank0]:Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0:1\n", "ib-modify-qp-22"},
		{"in pieces of a verb", "Last error:\nNET/OFI Unexpected number of remote rails for dev 3. Expected 4 but got 2\n", "ofi-rails-differ"},
		{"nothing behind it", "Last error:\n\nTraceback (most recent call last):\n  File \"x.py\"\n", ""},
		{"of another program", "the Last error: was a typing error\nBootstrap : no socket interface found, said the page\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := New(Options{})
			s := w.Source("")
			for i := range len(c.log) { // however it is cut
				_, _ = s.Write([]byte(c.log[i : i+1]))
			}
			_ = s.Close()
			if got := strings.Join(w.Verdict().FatalErrors, " "); got != c.fatal {
				t.Errorf("by byte: fatal %q, want %q", got, c.fatal)
			}
			if got := strings.Join(mustScan(t, c.log).FatalErrors, " "); got != c.fatal {
				t.Errorf("fatal %q, want %q", got, c.fatal)
			}
		})
	}
}

// TestGDRReasons: why GPUDirect is off is said where it is off, and not for pairs that
// nobody uses.
func TestGDRReasons(t *testing.T) {
	const staged = p1 + "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0\n" + p1 + "Connected all rings, use ring PXN 0 GDR 0\n"
	const direct = p1 + "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n" + p1 + "Connected all rings, use ring PXN 0 GDR 1\n"
	for _, c := range []struct{ name, log, want string }{
		{"no module", p1 + "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)\n" + staged, "nvidia_peermem"},
		{"2.13 and later", p1 + "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n" + staged, "nvidia_peermem"},
		{"gIB", p1 + "NET/gIB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n" + strings.ReplaceAll(staged, "NET/IB", "NET/gIB"), "nvidia_peermem"},
		{"too far", p1 + "GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 7 > 4)\n" + staged, "too far"},
		{"too far, 2.4", p1 + "NET/IB : GPU Direct RDMA Disabled for GPU 0[0] / HCA 0 (distance 3 >= 2)\n" + staged, "too far"},
		{"the user's level", p1 + "NCCL_NET_GDR_LEVEL set by environment to LOC\n" + p1 + "GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 3 > 0)\n" + staged, "NCCL_NET_GDR_LEVEL=LOC forbids"},
		{"libfabric", p1 + "NET/OFI Could not disable CUDA API usage for HMEM, disabling GDR\n" + staged, "libfabric plugin turned it off"},
		{"no reads", "libfabric:4:170::efa:core:rxr_info():506<warn> FI_HMEM capability requires RDMA, which this device does not support.\n" + staged, "no RDMA reads"},
		{"a pair that nobody uses", p1 + "GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 7 > 4)\n" + direct, ""},
		{"on for others", p1 + "GPU Direct RDMA Enabled for GPU 2 / HCA 0 (distance 3 <= 4), read 0\n" + p1 + "GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 7 > 4)\n", ""},
		{"one node", p1 + "comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0\n" + p1 + "GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 7 > 4)\n", ""},
		{"no reason seen", staged, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := mustScan(t, c.log)
			var said string
			for _, e := range v.Events {
				if e.ID == "gdr-off" {
					said += e.Text
				}
			}
			if c.want == "" && said != "" || !strings.Contains(said, c.want) {
				t.Errorf("says %q, want %q: %s", said, c.want, digest(v))
			}
			if c.want != "" && !strings.Contains(v.Sentence, "GPUDirect off: ") {
				t.Errorf("the verdict is %q", v.Sentence)
			}
		})
	}
}

// TestHostOfWhatIsSaid: the host stands before, behind, or some lines below what is said.
func TestHostOfWhatIsSaid(t *testing.T) {
	for _, c := range []struct{ name, log, id string }{
		{"PSM2 before its pid", "n1.4711PSM2 no hfi units are active (err=23)\n", "psm-no-port"},
		{"PSM3 before its rank", "n1:rank3: PSM3 can't open nic unit: 0 (err=23)\n", "psm3-open"},
		{"PSM3 behind its time", "[1700000000.5] n1:rank0.a.out: Failed to modify UD QP to INIT on mlx5_0: Operation not permitted\n", "psm-qp"},
		{"srun -l", "3: [n1:4711] pml_ucx.c:419  Error: ucp_ep_create(proc=0) failed: Destination is unreachable\n", "mpi-ucx-endpoint"},
		{"help text", "WARNING: There is at least non-excluded one OpenFabrics device found,\nbut there are no active ports detected.\n\n  Local host: n1\n", "mpi-no-active-port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := mustScan(t, c.log)
			for _, e := range v.Events {
				if e.ID == c.id && e.Host == "n1" {
					return
				}
			}
			t.Errorf("not said of n1: %+v", v.Events)
		})
	}
}
