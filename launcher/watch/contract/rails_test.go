package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"fabrun/launcher/watch"
)

var began = time.Date(2026, 11, 3, 22, 30, 0, 0, time.Local)

// at is so many seconds after the job began.
func at(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }

// job is a job of hosts "node01", "node02", … with so many rails of 400 Gb/s, whose
// samples a test changes as it goes.
type job struct {
	j     *Judge
	hosts []string
	ports map[string][]watch.PortSample
	said  []watch.Event
}

const gbps = 400

func newJob(hosts, rails int, pins ...Pin) *job {
	b := &job{ports: map[string][]watch.PortSample{}}
	p := Promise{RateGbps: gbps, Pins: pins}
	for r := range rails {
		p.Rails = append(p.Rails, Rail{Ports: map[string]Port{}})
		for h := range hosts {
			three := 3
			p.Rails[r].Ports[fmt.Sprintf("node%02d", h+1)] = Port{Name: fmt.Sprintf("mlx5_%d:1", r), GID: &three}
		}
	}
	for h := range hosts {
		name := fmt.Sprintf("node%02d", h+1)
		b.hosts = append(b.hosts, name)
		for r := range rails {
			b.ports[name] = append(b.ports[name], watch.PortSample{
				HCA: fmt.Sprintf("mlx5_%d", r), Port: 1, Active: true, RateGbps: gbps, Netdev: fmt.Sprintf("eth%d", r),
				Counters: map[watch.Counter]uint64{watch.TxBytes: 1e9, watch.RxBytes: 1e9},
				GIDs: []watch.GID{
					{Index: 0, GID: "fe80::1", Type: "IB/RoCE v1"},
					{Index: 1, GID: "fe80::1", Type: "RoCE v2"},
					{Index: 2, GID: fmt.Sprintf("::ffff:10.%d.0.%d", r, h+1), Type: "IB/RoCE v1", Netdev: fmt.Sprintf("eth%d", r)},
					{Index: 3, GID: fmt.Sprintf("::ffff:10.%d.0.%d", r, h+1), Type: "RoCE v2", Netdev: fmt.Sprintf("eth%d", r)},
				},
			})
		}
	}
	b.j = New(p)
	return b
}

// look takes a sample of every host, or of those named.
func (b *job) look(t time.Time, of ...string) {
	if len(of) == 0 {
		of = b.hosts
	}
	for _, name := range of {
		s := watch.Sample{Time: t, Host: name, Addresses: []string{"10.9.0." + strings.TrimLeft(strings.TrimPrefix(name, "node"), "0")}}
		for _, p := range b.ports[name] {
			p.Counters = maps.Clone(p.Counters)
			p.GIDs = slices.Clone(p.GIDs)
			s.Ports = append(s.Ports, p)
		}
		b.said = append(b.said, b.j.Sample(s)...)
	}
}

// carry adds to the counters of every active port but those named.
func (b *job) carry(bytes uint64, not ...string) {
	for _, host := range b.hosts {
		for i := range b.ports[host] {
			p := &b.ports[host][i]
			if p.Active && !slices.Contains(not, p.HCA) {
				p.Counters[watch.TxBytes] += bytes
				p.Counters[watch.RxBytes] += bytes
			}
		}
	}
}

func (b *job) port(host string, rail int) *watch.PortSample { return &b.ports[host][rail] }

func (b *job) ids() string {
	var out []string
	for _, e := range b.said {
		out = append(out, e.ID)
	}
	return strings.Join(out, " ")
}

func TestRailLostAndBack(t *testing.T) {
	b := newJob(8, 8)
	b.look(at(0))
	b.port("node07", 3).Active, b.port("node07", 3).State = false, "DOWN"
	b.look(at(130), "node07")
	b.look(at(140))
	if b.ids() != EventRailLost {
		t.Fatalf("said %q, wanted it once", b.ids())
	}
	if got, want := b.said[0].Text, "8 rails promised, 7 since 22:32:10 (mlx5_3:1 on node07: link down), 50 GB/s fewer."; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if e := b.said[0]; e.Host != "node07" || e.Subject != "mlx5_3:1" || e.Severity != watch.SeverityWarning || !e.Time.Equal(at(130)) {
		t.Errorf("the event is %+v", e)
	}
	if k := b.j.Kept(false, 0); k.Promised != 8 || k.Kept != 7 || k.Losses[0].Until != nil || !strings.HasPrefix(k.Text, "8 rails promised, 7 since 22:32:10") || *k.LeftGbps != 2800 || *k.AllGbps != 3200 {
		t.Errorf("kept: %+v", k)
	}
	b.port("node07", 3).Active = true
	b.look(at(190))
	b.look(at(200))
	if b.ids() != EventRailLost+" "+EventRailBack {
		t.Fatalf("said %q", b.ids())
	}
	if got, want := b.said[1].Text, "mlx5_3:1 is back after 60 s: 8 rails promised, all there."; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	k := b.j.Kept(false, 0)
	if want := "8 rails promised, all there at the end; mlx5_3:1 on node07: link down from 22:32:10 to 22:33:10."; k.Kept != 8 || k.Text != want {
		t.Errorf("kept: %+v", k)
	}
}

// TestSlower: a port that fell from 400 to 100 Gb/s, and to nothing, and back.
func TestSlower(t *testing.T) {
	b := newJob(2, 4)
	b.look(at(0))
	b.port("node02", 1).RateGbps = 100
	b.look(at(60))
	if got, want := b.said[0].Text, "4 rails promised, 1 slower since 22:31:00 (mlx5_1:1 on node02: 100 instead of 400 Gb/s), 37.5 GB/s fewer."; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b.port("node02", 1).Active = false
	b.look(at(70))
	if got, want := b.said[1].Text, "4 rails promised, 3 since 22:31:10 (mlx5_1:1 on node02: link down), 50 GB/s fewer."; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b.port("node02", 1).Active, b.port("node02", 1).RateGbps = true, 400
	b.look(at(80))
	if b.ids() != "rail-lost rail-lost rail-back" {
		t.Errorf("said %q", b.ids())
	}
}

// TestOneRailOnManyHosts: a switch that dies takes one rail of every host: one line.
func TestOneRailOnManyHosts(t *testing.T) {
	b := newJob(200, 8)
	b.look(at(0))
	for _, h := range b.hosts {
		b.port(h, 5).Active = false
	}
	b.look(at(10))
	b.look(at(20))
	if b.ids() != EventRailLost {
		t.Errorf("said %q", b.ids())
	}
	if k := b.j.Kept(false, 0); !strings.Contains(k.Text, "7 since 22:30:10 (mlx5_5:1 on node01 and 199 more: link down), 50 GB/s fewer") {
		t.Errorf("kept: %s", k.Text)
	}
	// One host's end comes back: the rail does not.
	b.port("node01", 5).Active = true
	b.look(at(30))
	if b.ids() != EventRailLost {
		t.Errorf("said %q", b.ids())
	}
}

func TestNothingIsSaid(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(b *job)
	}{
		{"a healthy job", func(b *job) {
			for s := 10; s < 600; s += 10 {
				b.carry(1e10)
				b.look(at(float64(s)))
			}
		}},
		{"a rail that the job does not use", func(b *job) {
			for s := 10; s < 600; s += 10 {
				b.carry(1e10, "mlx5_3")
				b.look(at(float64(s)))
			}
		}},
		{"counters that are reset", func(b *job) {
			for s := 10; s < 300; s += 10 {
				b.carry(1e10)
				if s == 150 {
					for i := range b.ports["node01"] {
						b.port("node01", i).Counters[watch.TxBytes], b.port("node01", i).Counters[watch.RxBytes] = 0, 0
					}
				}
				b.look(at(float64(s)))
			}
		}},
		{"a port that was down at plan time and is none of the rails", func(b *job) {
			b.ports["node01"] = append(b.ports["node01"], watch.PortSample{HCA: "mlx5_9", Port: 1, RateGbps: 40})
			b.look(at(10))
			b.look(at(20))
		}},
		{"a port that one look does not show", func(b *job) {
			all := b.ports["node01"]
			b.ports["node01"] = all[1:]
			b.look(at(10), "node01")
			b.ports["node01"] = all
			b.look(at(20), "node01")
		}},
		{"a host that is not looked at for long", func(b *job) {
			for s := 10; s < 600; s += 10 {
				b.look(at(float64(s)), "node01")
			}
			b.look(at(600))
		}},
		{"a job that communicates no more", func(b *job) {
			for s := 10; s < 300; s += 10 {
				b.carry(1e10)
				b.look(at(float64(s)))
			}
			for s := 300; s < 900; s += 10 {
				b.look(at(float64(s)))
			}
		}},
		{"a rate that is not known for a moment", func(b *job) {
			b.port("node01", 0).RateGbps = 0
			b.look(at(10))
		}},
		{"a port that becomes faster", func(b *job) {
			b.port("node01", 0).RateGbps = 800
			b.look(at(10))
			b.port("node01", 0).RateGbps = 400
			b.look(at(20))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newJob(2, 4)
			b.look(at(0))
			c.run(b)
			if len(b.said) > 0 {
				t.Errorf("said %+v", b.said)
			}
			if k := b.j.Kept(false, 16); k.Text != "" || k.Price != nil || k.Kept != 4 {
				t.Errorf("kept: %+v", k)
			}
		})
	}
}

// TestDeviceGone: a device that disappears (unplugged, its driver reset).
func TestDeviceGone(t *testing.T) {
	b := newJob(2, 2)
	b.look(at(0))
	b.ports["node01"] = b.ports["node01"][:1]
	b.look(at(10))
	b.look(at(20))
	if len(b.said) != 1 || !strings.Contains(b.said[0].Text, "1 since 22:30:20 (mlx5_1:1 on node01: its device is gone)") {
		t.Errorf("said %+v", b.said)
	}
}

// TestFlapping: two losses are said with their ends, the third says that the rail
// flaps, and those after it are counted; after a quiet time the rail is back.
func TestFlapping(t *testing.T) {
	b := newJob(2, 2)
	b.look(at(0))
	for i := range 20 {
		b.port("node02", 0).Active = false
		b.look(at(float64(20*i + 10)))
		b.port("node02", 0).Active = true
		b.look(at(float64(20*i + 20)))
	}
	if want := "rail-lost rail-back rail-lost rail-back rail-flaps"; b.ids() != want {
		t.Errorf("said %q, want %q", b.ids(), want)
	}
	if want := "mlx5_0:1 went down 3 times since 22:30:10 (link down)"; !strings.HasPrefix(b.said[4].Text, want) {
		t.Errorf("got %s", b.said[4].Text)
	}
	if k := b.j.Kept(false, 0); len(k.Losses) != 20 || !strings.Contains(k.Text, "the longest of 20 losses") {
		t.Errorf("kept: %+v", k)
	}
	b.look(at(1200))
	b.look(at(1300))
	if !strings.HasSuffix(b.ids(), " "+EventRailFlaps+" "+EventRailBack) {
		t.Errorf("said %q", b.ids())
	}
}

// TestIdleRail: a rail that carried its part is up and carries nothing: that is said,
// and is no lost rail.
func TestIdleRail(t *testing.T) {
	b := newJob(1, 4)
	b.look(at(0))
	s := 10.0
	for ; s < 100; s += 10 {
		b.carry(1e10)
		b.look(at(s))
	}
	for ; s < 200; s += 10 {
		b.carry(1e10, "mlx5_2")
		b.look(at(s))
	}
	if b.ids() != EventRailIdle || !strings.Contains(b.said[0].Text, "mlx5_2:1 is up and carries nothing since 22:31:30") {
		t.Fatalf("said %+v", b.said)
	}
	b.carry(1e10)
	b.look(at(s))
	if b.ids() != EventRailIdle+" "+EventRailBack {
		t.Errorf("said %q", b.ids())
	}
	if k := b.j.Kept(false, 0); k.Kept != 4 || k.Text != "" {
		t.Errorf("kept: %+v", k)
	}
}

// TestNCCLGivesUpADevice: the log names a number, the ports a name: one loss, not
// two; and a link that is back is none that NCCL uses.
func TestNCCLGivesUpADevice(t *testing.T) {
	zero := 0
	b := newJob(2, 8)
	b.look(at(0))
	b.port("node02", 3).Active = false
	b.look(at(10))
	b.said = append(b.said, b.j.Event(watch.Event{Time: at(14), ID: "rail-failed", Host: "node02", Device: &zero})...)
	if b.ids() != EventRailLost {
		t.Errorf("said %q", b.ids())
	}
	b.port("node02", 3).Active = true
	b.look(at(30))
	if k := b.j.Kept(false, 0); k.Kept != 7 || !strings.Contains(k.Text, "7 since 22:30:10 (1 that NCCL gave up on node02), 50 GB/s fewer") {
		t.Errorf("kept: %+v", k)
	}
	b.said = append(b.said, b.j.Event(watch.Event{Time: at(40), ID: "rail-recovered", Host: "node02", Device: &zero})...)
	if k := b.j.Kept(false, 0); k.Kept != 8 {
		t.Errorf("kept: %+v", k)
	}
	// Without a port to blame.
	b.said = nil
	b.said = append(b.said, b.j.Event(watch.Event{Time: at(50), ID: "rail-failed", Host: "node01.site", Device: &zero})...)
	if len(b.said) != 1 || b.said[0].Text != "8 rails promised, 7 since 22:30:50 (1 that NCCL gave up on node01.site), 50 GB/s fewer." {
		t.Errorf("said %+v", b.said)
	}
}

// TestHostNames: the plan's name has a domain, the sample's has none.
func TestHostNames(t *testing.T) {
	b := newJob(1, 1)
	j := New(Promise{Rails: []Rail{{Ports: map[string]Port{"node01.cluster.site": {Name: "mlx5_0:1"}}}}})
	s := watch.Sample{Time: at(0), Host: "node01", Ports: b.ports["node01"]}
	j.Sample(s)
	s.Time, s.Ports = at(10), []watch.PortSample{{HCA: "mlx5_0", Port: 1, State: "INIT"}}
	if said := j.Sample(s); len(said) != 1 || said[0].Text != "1 rail promised, none since 22:30:10 (mlx5_0:1 on node01: port INIT), 50 GB/s fewer." {
		t.Errorf("said %+v", said)
	}
}

// TestUnknownRate: Soft-RoCE tells no rate, so no figure is said.
func TestUnknownRate(t *testing.T) {
	j := New(Promise{Rails: []Rail{{Ports: map[string]Port{"n1": {Name: "rxe_0:1"}}}, {Ports: map[string]Port{"n1": {Name: "rxe_1:1"}}}}})
	up := []watch.PortSample{{HCA: "rxe_0", Port: 1, Active: true}, {HCA: "rxe_1", Port: 1, Active: true}}
	j.Sample(watch.Sample{Time: at(0), Host: "n1", Ports: up})
	said := j.Sample(watch.Sample{Time: at(10), Host: "n1", Ports: []watch.PortSample{up[0], {HCA: "rxe_1", Port: 1, State: "DOWN"}}})
	if len(said) != 1 || said[0].Text != "2 rails promised, 1 since 22:30:10 (rxe_1:1 on n1: link down)." {
		t.Errorf("said %+v", said)
	}
	if k := j.Kept(false, 0); k.Price != nil || k.RateGbps != nil || k.AllGbps != nil {
		t.Errorf("kept: %+v", k)
	}
}

// TestNoPromise: nothing was promised, nothing is judged.
func TestNoPromise(t *testing.T) {
	j := New(Promise{})
	j.Sample(watch.Sample{Time: at(0), Host: "n1", Ports: []watch.PortSample{{HCA: "mlx5_0", Port: 1, Active: true}}})
	if said := j.Sample(watch.Sample{Time: at(10), Host: "n1", Ports: []watch.PortSample{{HCA: "mlx5_0", Port: 1}}}); len(said) > 0 {
		t.Errorf("said %+v", said)
	}
	zero := 0
	if said := j.Event(watch.Event{ID: "rail-failed", Host: "n1", Device: &zero}); len(said) > 0 {
		t.Errorf("said %+v", said)
	}
	if k := j.Kept(false, 8); k.Text != "" || k.Price != nil {
		t.Errorf("kept: %+v", k)
	}
}

// BenchmarkSample: a look at one of 4,000 hosts costs what a look at one of two does.
func BenchmarkSample(b *testing.B) {
	for _, hosts := range []int{2, 4000} {
		b.Run(fmt.Sprint(hosts), func(b *testing.B) {
			j := newJob(hosts, 8)
			for i, r := range j.j.promise.Rails {
				ports := map[string]Port{}
				for h, p := range r.Ports {
					ports[h+".site"] = p
				}
				j.j.promise.Rails[i].Ports = ports
			}
			j.j = New(j.j.promise)
			j.look(at(0))
			b.ResetTimer()
			for i := range b.N {
				j.look(at(float64(10*i)), "node01")
			}
		})
	}
}
