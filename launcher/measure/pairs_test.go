package measure

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cluster answers Exec as hosts with perftest would.
type cluster struct {
	mu      sync.Mutex
	servers map[string]chan struct{} // "host:tcp" → closed when a client came
	argv    [][]string
	running int
	absent  []string                          // programs that are not installed
	noCUDA  bool                              // perftest was built without it
	taken   map[string]bool                   // "host:tcp" that somebody else listens on
	rate    func(from, to, dev string) string // Gb/s, or a failure's text
}

func option(argv []string, name string) string {
	if i := slices.Index(argv, name); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}

func (c *cluster) exec(ctx context.Context, host string, argv []string, out io.Writer) (int, error) {
	c.mu.Lock()
	c.argv = append(c.argv, append([]string{host}, argv...))
	c.running++
	c.mu.Unlock()
	defer func() { c.mu.Lock(); c.running--; c.mu.Unlock() }()
	if argv[0] == "taskset" {
		if slices.Contains(c.absent, "taskset") {
			fmt.Fprintln(out, "sh: 1: taskset: not found")
			return 127, nil
		}
		argv = argv[3:]
		if slices.Contains(c.absent, argv[0]) {
			fmt.Fprintf(out, "taskset: failed to execute %s: No such file or directory\n", argv[0])
		}
	}
	if slices.Contains(c.absent, argv[0]) {
		return 127, nil
	}
	cuda := slices.ContainsFunc(argv, func(a string) bool { return strings.HasPrefix(a, "--use_cuda") })
	if cuda && c.noCUDA {
		fmt.Fprintf(out, "%s: unrecognized option '--use_cuda=0'\n Invalid Command line. Please check command rerun \n", argv[0])
		return 1, nil
	}
	if argv[0] == "rping" {
		// The address stands for the host: 10.0.0.N is nN.
		argv = append(argv, "n"+strings.TrimPrefix(option(argv, "-a"), "10.0.0."))
		if argv[1] == "-s" {
			argv = argv[:len(argv)-1]
		}
	}
	tcp, last := option(argv, "-p"), argv[len(argv)-1]
	if !strings.HasPrefix(last, "n") { // the server has no host
		key := host + ":" + tcp
		c.mu.Lock()
		if c.servers[key] != nil || c.taken[key] {
			c.mu.Unlock()
			fmt.Fprintf(out, "Couldn't listen to port %s\n", tcp)
			return 1, nil
		}
		met := make(chan struct{})
		c.servers[key] = met
		c.mu.Unlock()
		defer func() { c.mu.Lock(); delete(c.servers, key); c.mu.Unlock() }()
		select {
		case <-met:
		case <-ctx.Done():
			return -1, ctx.Err()
		}
		return 0, nil
	}
	c.mu.Lock()
	met := c.servers[last+":"+tcp]
	c.mu.Unlock()
	if met == nil && argv[0] == "rping" {
		fmt.Fprint(out, "cma event RDMA_CM_EVENT_REJECTED, error 8\nwait for CONNECTED state 4\nconnect error -1\n")
		return 255, nil
	}
	if met == nil {
		fmt.Fprintf(out, "Couldn't connect to %s:%s\n Unable to init the socket connection\n", last, tcp)
		return 1, nil
	}
	close(met)
	dev := option(argv, "-d")
	if cuda {
		dev = "gpu " + dev
	}
	r := c.rate(host, last, dev)
	switch {
	case argv[0] == "rping":
		fmt.Fprint(out, "ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\nclient DISCONNECT EVENT...\n")
	case strings.HasPrefix(argv[0], "ibv_"):
		fmt.Fprint(out, "8192000 bytes in 0.01 seconds = 6553.60 Mbit/sec\n")
	case strings.Contains(argv[0], "_lat"):
		fmt.Fprint(out, " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 2 1000 1.0 2.0 1.6 1.7\n")
	case r[0] < '0' || r[0] > '9':
		fmt.Fprint(out, r)
		return 1, nil
	default:
		fmt.Fprint(out, strings.Replace(bwOutput, "AVG", r, 1))
	}
	return 0, nil
}

func runnerOf(c *cluster, hosts, rails int) *PairRunner {
	c.servers = map[string]chan struct{}{}
	r := &PairRunner{Exec: c.exec, Options: PairOptions{TC: ptr(106), SL: ptr(3), Latency: true, Expect: DefaultExpect(), Deadline: time.Hour}}
	for h := range hosts {
		var row []*TestPort
		for k := range rails {
			row = append(row, &TestPort{Host: fmt.Sprintf("n%d", h), HCA: fmt.Sprintf("mlx5_%d", k), Number: 1, GID: ptr(3), Address: fmt.Sprintf("10.0.0.%d", h), GPU: &GPUMemory{Index: k}, RateGbps: ptr(200.0), CPUs: []int{0, 1, 2, 3, 8}})
		}
		r.Ports = append(r.Ports, row)
	}
	return r
}

// TestPairs: perftest is run with the plan's marks on both ends, the slow
// port is named, and nothing is left running.
func TestPairs(t *testing.T) {
	const failed = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n"
	for _, tc := range []struct {
		name string
		rate func(from, to, dev string) string
		want string
		id   string
	}{
		{"all good", func(string, string, string) string { return "195.0" }, "", ""},
		{"slow port", func(f, to, d string) string {
			if d == "mlx5_1" && (f == "n2" || to == "n2") {
				return "90.0"
			}
			return "195.0"
		}, "port [2] rail 1 both", "pair.port"},
		{"cable one way", func(f, to, d string) string {
			if d == "mlx5_0" && f == "n3" {
				return "20.0"
			}
			return "195.0"
		}, "port [3] rail 0 sending", "pair.port"},
		{"dead node", func(f, to, _ string) string {
			if f == "n1" || to == "n1" {
				return failed
			}
			return "195.0"
		}, "node [1] rail -1 both dead", "pair.node"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := &cluster{rate: tc.rate}
			r := runnerOf(c, 6, 2)
			var ps []Probe
			for _, p := range Schedule(6, Quick)[0] {
				ps = append(ps, Probe{p, 0}, Probe{p, 1})
			}
			first := r.Probe(t.Context(), ps)
			cs, rounds := Locate(first, func(ps []Probe) []Measured { return r.Probe(t.Context(), ps) })
			if got := names(cs); got != tc.want || rounds > 3 {
				t.Errorf("got %q in %d rounds, want %q", got, rounds, tc.want)
			}
			fs := CulpritFindings(cs, Naming{Hosts: []string{"n0", "n1", "n2", "n3", "n4", "n5"}, Port: func(h, k int) string { return r.Ports[h][k].HCA }}, r.Options.Expect)
			if tc.id != "" && (len(fs) != 1 || fs[0].ID != tc.id) {
				t.Errorf("findings: %+v", fs)
			}
			if c.running != 0 || len(c.servers) != 0 {
				t.Errorf("%d programs left, servers %v", c.running, c.servers)
			}
			if first[0].There.Usec == nil && tc.name == "all good" {
				t.Error("no latency")
			}
			for _, a := range c.argv {
				line := strings.Join(a[1:], " ")
				if !strings.HasPrefix(line, "taskset -c 0-3,8 ib_") || !strings.Contains(line, "-x 3 --tclass=106 -S 3") {
					t.Fatalf("not as planned: %s", line)
				}
			}
		})
	}
}

func TestPairsWithoutPerftest(t *testing.T) {
	for _, tc := range []struct {
		absent            []string
		tool, failed, id  string
		address           string
		unpinned, noRates bool
	}{
		{absent: []string{"ib_write_bw"}, tool: "ibv_rc_pingpong", id: "pair.reach-only", noRates: true},
		{absent: []string{"ib_write_bw", "ibv_rc_pingpong"}, tool: "rping", id: "pair.reach-only", noRates: true},
		{absent: []string{"ib_write_bw", "ibv_rc_pingpong", "rping"}, failed: "perftest.missing", id: "pair.no-perftest", noRates: true},
		{absent: []string{"taskset"}, unpinned: true},
		{absent: []string{"taskset", "ib_write_bw"}, tool: "ibv_rc_pingpong", id: "pair.reach-only", unpinned: true, noRates: true},
	} {
		t.Run(strings.Join(tc.absent, " "), func(t *testing.T) {
			c := &cluster{absent: tc.absent, rate: func(string, string, string) string { return "195.0" }}
			r := runnerOf(c, 2, 1)
			ms := r.Probe(t.Context(), []Probe{{Pair{0, 1}, 0}})
			for _, o := range []Outcome{ms[0].There, ms[0].Back} {
				if o.Tool != tc.tool || o.Error != tc.failed || tc.noRates != (o.Gbps == nil) || tc.noRates && o.Verdict != Unknown {
					t.Errorf("got %+v", o)
				}
			}
			fs := LimitsOfPairs(ms, r)
			if len(fs) > 1 || len(fs) == 1 != (tc.id != "") || tc.id != "" && fs[0].ID != tc.id {
				t.Errorf("findings %+v, want %s", fs, tc.id)
			}
			last := c.argv[len(c.argv)-1][1]
			if tc.unpinned == (last == "taskset") {
				t.Errorf("the last program was started by %s", last)
			}
		})
	}
}

// TestPairsGPU: GPU memory is held against host memory, and a perftest that
// does not know GPUs accuses nobody.
func TestPairsGPU(t *testing.T) {
	rate := func(gpu, host string) func(string, string, string) string {
		return func(_, _, dev string) string {
			if strings.HasPrefix(dev, "gpu") {
				return gpu
			}
			return host
		}
	}
	for _, tc := range []struct {
		name   string
		c      *cluster
		staged bool
		want   Verdict
		id     string
	}{
		{"direct", &cluster{rate: rate("192.0", "195.0")}, false, Good, ""},
		{"staged", &cluster{rate: rate("30.0", "195.0")}, true, Broken, "pair.gpu-staging"},
		{"slow, not staged", &cluster{rate: rate("100.0", "195.0")}, false, Broken, "pair.pair"},
		{"built without", &cluster{noCUDA: true, rate: rate("192.0", "195.0")}, false, Good, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := runnerOf(tc.c, 2, 1)
			r.Options.GPU = true
			ms := r.Probe(t.Context(), []Probe{{Pair{0, 1}, 0}})
			o := ms[0].There
			if o.Staged() != tc.staged || o.Verdict != tc.want || tc.c.noCUDA == o.OfGPU {
				t.Errorf("got %+v", o)
			}
			cs, _ := Locate(ms, func(ps []Probe) []Measured { return r.Probe(t.Context(), ps) })
			fs := CulpritFindings(cs, Naming{Hosts: []string{"n0", "n1"}, Port: func(int, int) string { return "mlx5_0 port 1" }}, r.Options.Expect)
			if len(fs) == 1 != (tc.id != "") || tc.id != "" && fs[0].ID != tc.id {
				t.Errorf("findings %+v, want %q", fs, tc.id)
			}
			limits := LimitsOfPairs(ms, r)
			if tc.c.noCUDA != (len(limits) == 1 && limits[0].ID == "pair.no-cuda") {
				t.Errorf("limits %+v", limits)
			}
		})
	}
}

// TestPairsPortTaken: somebody else's server on the TCP port costs nothing but
// another port.
func TestPairsPortTaken(t *testing.T) {
	c := &cluster{taken: map[string]bool{}, rate: func(string, string, string) string { return "195.0" }}
	for tcp := 18515; tcp < 18515+4096*2; tcp++ {
		c.taken[fmt.Sprintf("n1:%d", tcp)] = true
	}
	r := runnerOf(c, 2, 1)
	if o := r.Probe(t.Context(), []Probe{{Pair{0, 1}, 0}})[0].There; o.Verdict != Good {
		t.Errorf("got %+v", o)
	}
}

// TestPairsEmulatedAgainstEachOther: software devices have no rate, but one
// direction that is far slower than all others is named, with both its ends.
func TestPairsEmulatedAgainstEachOther(t *testing.T) {
	for _, tc := range []struct {
		name       string
		there, bad string // Gb/s of all directions, of n1 to n0 on rail 1
		want       Verdict
		seen       string
	}{
		{"alike", "0.14", "0.07", Unknown, ""},
		{"beside other work", "0.14", "0.03", Unknown, ""},
		{"lossy", "0.14", "0.004", Broken, "0.004 Gb/s from n1 (mlx5_1 port 1) to n0 (mlx5_1 port 1), fine the other way"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &cluster{rate: func(from, _, dev string) string {
				if from == "n1" && dev == "mlx5_1" {
					return tc.bad
				}
				return tc.there
			}}
			r := runnerOf(c, 2, 2)
			for _, row := range r.Ports {
				for _, p := range row {
					p.Emulated, p.RateGbps = true, nil
				}
			}
			ms := r.Probe(t.Context(), []Probe{{Pair{0, 1}, 0}, {Pair{0, 1}, 1}})
			if v := ms[1].Back.Verdict; v != tc.want || ms[0].There.Bad() || ms[0].Back.Bad() || ms[1].There.Bad() {
				t.Fatalf("got %+v", ms)
			}
			cs, _ := Locate(ms, func(ps []Probe) []Measured { return r.Probe(t.Context(), ps) })
			fs := CulpritFindings(cs, Naming{Hosts: []string{"n0", "n1"}, Port: func(host, rail int) string { return r.Ports[host][rail].HCA + " port 1" }}, r.Options.Expect)
			if len(fs) == 1 != (tc.seen != "") || tc.seen != "" && (fs[0].Seen != tc.seen || fs[0].Wanted != "about the 0.14 Gb/s of the fastest of these software devices") {
				t.Errorf("findings %+v, want %q", fs, tc.seen)
			}
		})
	}
}

// TestPairsClock: on a busy or virtual machine perftest may fail to measure its
// own clock, prints zeros, and is asked again; where it never can, nobody is
// blamed.
func TestPairsClock(t *testing.T) {
	const zero = "Correlation coefficient r^2: 0.699967 < 0.9\n #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      120           0.000000            0.000000            0.000000\n"
	for _, tc := range []struct {
		name  string
		fails int
		want  Verdict
	}{{"twice", 2, Good}, {"always", 1 << 30, Unknown}} {
		t.Run(tc.name, func(t *testing.T) {
			var n atomic.Int64
			r := runnerOf(&cluster{rate: func(string, string, string) string {
				if int(n.Add(1)) <= tc.fails {
					return zero
				}
				return "195.0"
			}}, 2, 1)
			if o := r.Probe(t.Context(), []Probe{{Pair{0, 1}, 0}})[0].There; o.Verdict != tc.want || tc.want == Unknown && o.Error != "perftest.clock" {
				t.Errorf("got %+v", o)
			}
		})
	}
}

// TestPairsEmulated: rxe moves packets; how fast says nothing.
func TestPairsEmulated(t *testing.T) {
	c := &cluster{rate: func(string, string, string) string { return "1.3" }}
	r := runnerOf(c, 2, 1)
	r.Options.Expect.RateGbps = ptr(100.0)
	for _, row := range r.Ports {
		row[0].Emulated = true
	}
	ms := r.Probe(t.Context(), []Probe{{Pair{0, 1}, 0}})
	if o := ms[0].There; o.Verdict != Unknown || o.Gbps == nil || o.Usec == nil {
		t.Errorf("got %+v", o)
	}
	if fs := LimitsOfPairs(ms, r); len(fs) != 1 || fs[0].ID != "pair.emulated" {
		t.Errorf("findings %+v", fs)
	}
}

func TestPairsHang(t *testing.T) {
	c := &cluster{}
	r := runnerOf(c, 2, 1)
	r.Options.Deadline = 200 * time.Millisecond
	r.Exec = func(ctx context.Context, _ string, _ []string, _ io.Writer) (int, error) {
		<-ctx.Done()
		return -1, ctx.Err()
	}
	if o := r.Probe(t.Context(), []Probe{{Pair{0, 1}, 0}})[0].There; o.Error != "timeout" || o.Verdict != Broken {
		t.Errorf("got %+v", o)
	}
}
