package contract

import (
	"math"
	"strings"
	"testing"

	"fabrun/launcher/watch"
)

// talk adds TCP between two hosts to a job's samples.
func talk(b *job, seconds float64, bytes uint64) {
	for i, host := range b.hosts {
		peer := b.hosts[1-i]
		s := watch.Sample{
			Time: at(seconds), Host: host, Ports: b.ports[host], Addresses: []string{"10.9.0." + host[5:]},
			TCP: []watch.PeerBytes{{Peer: "10.9.0." + peer[5:], Tx: bytes / 2, Rx: bytes / 2}},
		}
		b.said = append(b.said, b.j.Sample(s)...)
	}
}

func near(got, want float64) bool { return math.Abs(got-want) <= 0.001*math.Abs(want)+1e-9 }

// TestPriceOfAFallback: 100 s of 2 GB/s, then 100 s of 1 GB/s, over TCP; two rails of
// 400 Gb/s would have had 100 GB/s.
func TestPriceOfAFallback(t *testing.T) {
	b := newJob(2, 2)
	total := uint64(0)
	talk(b, 0, 0)
	for s := 10; s <= 200; s += 10 {
		if s <= 100 {
			total += 20e9
		} else {
			total += 10e9
		}
		talk(b, float64(s), total)
	}
	talk(b, 300, total) // and then nothing
	k := b.j.Kept(true, 16)
	p := k.Price
	if p == nil || p.TCPBytes == nil || *p.TCPBytes != 300e9 || *p.RailsGbps != 800 || *p.PeakTCPBps != 2e9 {
		t.Fatalf("price: %+v", p)
	}
	// At 2 GB/s all took 150 s; TCP moved for 200 s; the rails need 3 s one way, 1.5 s both.
	if !near(p.Seconds.Low, 147) || !near(p.Seconds.High, 198.5) || !near(p.GPUHours.High, 198.5*16/3600) || len(p.Basis) != 4 {
		t.Errorf("price: %+v %+v", p.Seconds, p)
	}
	if want := "Price: 300.0 GB went over TCP in 3 min 20 s, at up to 2.0 GB/s a host; the 2 rails (800 Gb/s) would have carried it in 3.0 s: 2 min 27 s to 3 min 19 s longer on the network, 0.65 to 0.88 GPU-hours of 16 GPUs."; k.Text != want {
		t.Errorf("got  %s\nwant %s", k.Text, want)
	}
	if p := b.j.Kept(false, 16).Price; p != nil {
		t.Errorf("without a fallback: %+v", p)
	}
	if p := b.j.Kept(true, 0).Price; p.GPUHours != nil || strings.Contains(p.Text, "GPU") {
		t.Errorf("GPUs are not known: %+v", p)
	}
}

// TestNoFigureWithoutABasis: the kernel tells no TCP bytes; nobody knows the rails' rate.
func TestNoFigureWithoutABasis(t *testing.T) {
	b := newJob(2, 2)
	b.look(at(0))
	b.look(at(100))
	if k := b.j.Kept(true, 16); k.Price != nil || k.Text != "" {
		t.Errorf("kept: %+v", k)
	}
	b = newJob(2, 2)
	b.j.promise.RateGbps = 0
	for _, h := range b.hosts {
		for i := range b.ports[h] {
			b.ports[h][i].RateGbps = 0
		}
	}
	talk(b, 0, 0)
	talk(b, 10, 20e9)
	p := b.j.Kept(true, 16).Price
	if p == nil || p.Seconds != nil || p.GPUHours != nil || p.RailsGbps != nil || *p.TCPBytes != 20e9 || !strings.Contains(p.Text, "is not known") {
		t.Errorf("price: %+v", p)
	}
}

// TestPriceOfALostRail: 8 rails, one lost for 100 s in which each of the others moved
// 2 TB each way.
func TestPriceOfALostRail(t *testing.T) {
	b := newJob(2, 8)
	b.look(at(0))
	b.carry(1e12)
	b.look(at(100))
	b.port("node02", 3).Active = false
	b.look(at(100))
	for s := 110; s <= 200; s += 10 {
		b.carry(2e11, "mlx5_3")
		b.look(at(float64(s)))
	}
	b.port("node02", 3).Active = true
	b.look(at(200))
	b.carry(1e12)
	b.look(at(300))
	k := b.j.Kept(false, 16)
	p := k.Price
	// A host sent 14 TB: 40 s at 2800 Gb/s, 35 s at 3200; at most an eighth of 100 s.
	if p == nil || *p.RDMABytes != 28e12 || !near(p.Seconds.Low, 5) || !near(p.Seconds.High, 12.5) || !near(*p.DegradedS, 100) || !near(p.GPUHours.High, 12.5*16/3600) {
		t.Fatalf("price: %+v", p)
	}
	if want := "Price: 28.0 TB went over what was left of the rails in 100 s, with up to 12 % of their rate missing: 5.0 s to 12 s longer on the network, 0.022 to 0.056 GPU-hours of 16 GPUs."; !strings.HasSuffix(k.Text, want) {
		t.Errorf("got  %s\nwant %s", k.Text, want)
	}
}

// TestPriceOfALostRailWithoutCounters: nothing is said.
func TestPriceOfALostRailWithoutCounters(t *testing.T) {
	b := newJob(2, 8)
	for _, h := range b.hosts {
		for i := range b.ports[h] {
			b.ports[h][i].Counters = map[watch.Counter]uint64{}
		}
	}
	b.look(at(0))
	b.port("node02", 3).Active = false
	b.look(at(10))
	b.look(at(20))
	if k := b.j.Kept(false, 16); k.Price != nil || strings.Contains(k.Text, "Price") {
		t.Errorf("kept: %+v", k)
	}
}
