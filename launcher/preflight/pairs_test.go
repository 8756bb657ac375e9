package preflight

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// cluster answers Exec as hosts with perftest would.
type cluster struct {
	mu      sync.Mutex
	servers map[string]chan struct{} // "host:tcp" → closed when a client came
	argv    [][]string
	running int
	missing bool                              // no perftest installed
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
		argv = argv[3:]
	}
	if c.missing && strings.HasPrefix(argv[0], "ib_") {
		return 127, nil
	}
	tcp, last := option(argv, "-p"), argv[len(argv)-1]
	if !strings.HasPrefix(last, "n") { // the server has no host
		key := host + ":" + tcp
		c.mu.Lock()
		if c.servers[key] != nil {
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
	if met == nil {
		fmt.Fprintf(out, "Couldn't connect to %s:%s\n Unable to init the socket connection\n", last, tcp)
		return 1, nil
	}
	close(met)
	r := c.rate(host, last, option(argv, "-d"))
	switch {
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
	r := &PairRunner{Exec: c.exec, Options: PairOptions{TC: ptr(106), SL: ptr(3), Latency: true, Expect: DefaultExpect(), Deadline: 20 * time.Second}}
	for h := range hosts {
		var row []*TestPort
		for k := range rails {
			row = append(row, &TestPort{Host: fmt.Sprintf("n%d", h), HCA: fmt.Sprintf("mlx5_%d", k), Number: 1, GID: ptr(3), RateGbps: ptr(200.0), CPUs: []int{0, 1, 2, 3, 8}})
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
			fs := CulpritFindings(cs, []string{"n0", "n1", "n2", "n3", "n4", "n5"}, func(h, k int) string { return r.Ports[h][k].HCA }, r.Options.Expect)
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
	c := &cluster{missing: true, rate: func(string, string, string) string { return "195.0" }}
	r := runnerOf(c, 2, 1)
	ms := r.Probe(t.Context(), []Probe{{Pair{0, 1}, 0}})
	if o := ms[0].There; o.Verdict != Unknown || o.Gbps != nil || o.Error != "" {
		t.Errorf("only reachability is shown: %+v", o)
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
