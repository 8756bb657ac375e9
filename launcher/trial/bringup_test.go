package trial

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"fabrun/envgen"
	"fabrun/launcher/measure"
	"fabrun/launcher/remote"
	"fabrun/launcher/report"
	"fabrun/profiles"
	"fabrun/topology"
)

// scripted answers as two hosts with perftest would, and counts bytes in one
// priority.
type scripted struct {
	prio int

	mu      sync.Mutex
	waiting map[string]chan struct{} // "host port" of a server
	looks   int64
}

func (*scripted) Name() string { return "native" }
func (*scripted) Close() error { return nil }

func (s *scripted) Exec(ctx context.Context, host string, cmd remote.Command, to remote.Streams) (int, error) {
	argv := cmd.Argv
	switch argv[0] {
	case "sh":
		return 0, nil // no benchmark is found
	case "/opt/fabrun":
		s.mu.Lock()
		s.looks++
		n := s.looks << 30
		s.mu.Unlock()
		fmt.Fprintf(to.Stdout, "fabrun-snapshot 1\n-- fabrun/ethtool/ens1 --\ndriver mlx5_core\nstat rx_prio%[1]d_bytes %[2]d\nstat tx_prio%[1]d_bytes %[2]d\n-- sys/class/net/ens1/mtu --\n9000\n", s.prio, n)
		return 0, nil
	}
	port := argv[slices.Index(argv, "-p")+1]
	last := argv[len(argv)-1]
	if !strings.HasPrefix(last, "node") {
		met := make(chan struct{})
		s.mu.Lock()
		s.waiting[host+" "+port] = met
		s.mu.Unlock()
		select {
		case <-met:
			return 0, nil
		case <-ctx.Done():
			return -1, ctx.Err()
		}
	}
	s.mu.Lock()
	met := s.waiting[last+" "+port]
	delete(s.waiting, last+" "+port)
	s.mu.Unlock()
	if met == nil {
		fmt.Fprintf(to.Stdout, "Couldn't connect to %s:%s\n", last, port)
		return 1, nil
	}
	close(met)
	if argv[0] == "ib_send_lat" {
		fmt.Fprint(to.Stdout, " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 2       1000          1.5           9.1         1.6     	       1.7\n")
		return 0, nil
	}
	fmt.Fprint(to.Stdout, " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 1048576    46500            0.00               196.10   		     0.023000\n")
	return 0, nil
}

// TestBringupMeasures: what each stage measures reaches its stage, the counters
// of the pair test among them.
func TestBringupMeasures(t *testing.T) {
	for _, tc := range []struct {
		name string
		prio int
		want string
	}{
		{"lossless", 3, "link passed, driver passed, pairs passed, gpudirect skipped, qos passed, collectives skipped, separation passed"},
		{"unmarked on the wire", 0, "link passed, driver passed, pairs passed, gpudirect skipped, qos failed, collectives not reached, separation not reached"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			prio, rate := 3, 200.0
			s := Trial{Site: Site{
				Transport: &scripted{prio: tc.prio, waiting: map[string]chan struct{}{}},
				Profile:   profiles.Profile{Fabric: profiles.Fabric{QoS: &profiles.QoS{Trust: "dscp", RDMA: profiles.Class{DSCP: 26, ECN: 2, Priority: &prio}, PFC: []int{3}}}},
				Rails:     []envgen.Rail{{Ports: map[string]string{"node1": "mlx5_0:1", "node2": "mlx5_0:1"}}},
			}}
			s.Paths = map[string]string{}
			for _, name := range []string{"node1", "node2"} {
				s.Reach = append(s.Reach, name)
				s.Paths[name] = "/opt/fabrun"
				s.Hosts = append(s.Hosts, topology.Host{Name: name, Netdevs: []topology.Netdev{{Name: "ens1"}}, HCAs: []topology.HCA{{Name: "mlx5_0", Driver: "mlx5", Ports: []topology.Port{{
					Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", Netdev: "ens1", RateGbps: &rate, RateTrusted: true,
				}}}}})
			}
			res := report.Checked{Hosts: s.Reach}
			if err := s.BringUp(t.Context(), Options{Pairs: "off"}, make([][]string, 2), &res); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, st := range res.Stages {
				got = append(got, string(st.Stage.ID)+" "+st.Status)
			}
			if s := strings.Join(got, ", "); s != tc.want {
				t.Errorf("got  %s\nwant %s\n%+v", s, tc.want, res.Findings)
			}
			if len(res.Pairs) != 2 || res.Pairs[0].Verdict != measure.Good || res.Pairs[0].Usec == nil {
				t.Errorf("pairs %+v", res.Pairs)
			}
			var b strings.Builder
			if err := report.Check(&b, res, false); err != nil || !strings.Contains(b.String(), "perftest between pairs, host memory") {
				t.Errorf("%v: %s", err, b.String())
			}
		})
	}
}
