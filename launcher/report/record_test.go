package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/plan"
	"fabrun/launcher/watch"
	"fabrun/topology/finding"
)

var began = time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)

// clock gives a second more each time.
func clock() func() time.Time {
	t := began.Add(-time.Second)
	return func() time.Time {
		t = t.Add(time.Second)
		return t
	}
}

// recorded writes a job of two hosts: rdma and tcp are what it moved, wall how
// long it took.
func recorded(t *testing.T, rdma, tcp uint64, wall float64) []byte {
	t.Helper()
	var b bytes.Buffer
	r := NewRecorder(&b, clock(), RecordStart{Command: []string{"mpirun", "-np", "2", "./a.out", "<script>alert(1)</script>"}, Host: "n1", Version: "v1", Hosts: []string{"n1", "n2"}})
	r.Plan([]byte(`{"contract":"1 rail of RoCE v2","env":[{"name":"UCX_NET_DEVICES","value":"mlx5_0:1","origin":"plan","why":"the ACTIVE port"}],"findings":[]}`))
	r.Finding(finding.Finding{ID: "port.mtu", Severity: finding.Warning, Host: "n2", Subject: "mlx5_0 port 1", Why: "small packets"})
	yes, no := true, false
	fb := &no
	cause := ""
	if rdma == 0 {
		fb, cause = &yes, watch.CauseCounter
	}
	for _, at := range []uint64{0, 1} {
		for i, host := range []string{"n1", "n2"} {
			peer := []string{"10.0.0.2", "10.0.0.1"}[i]
			r.Sample(watch.Sample{
				Time: began.Add(time.Duration(at) * time.Minute), Host: host, Netdevs: []watch.NetdevSample{},
				Addresses: []string{[]string{"10.0.0.1", "10.0.0.2"}[i]}, TCP: []watch.PeerBytes{{Peer: peer, Tx: at * tcp, Rx: at * tcp}},
				Ports: []watch.PortSample{{HCA: "mlx5_0", Port: 1, Active: true, RateGbps: 100, Counters: map[watch.Counter]uint64{watch.TxBytes: at * rdma, watch.RxBytes: at * rdma}}},
			})
		}
	}
	if cause != "" {
		r.Event(watch.Event{Time: began.Add(time.Minute), ID: "fallback", Severity: watch.SeverityError, Cause: cause, Text: "it fell back", Line: "n1: <b>line</b>"})
	}
	r.Verdict(watch.Verdict{
		Schema: watch.SchemaVerdict, Library: "ucx", Version: "1.18.1", Networks: []string{"rc_mlx5"}, Devices: []string{"mlx5_0:1"}, Fallback: fb,
		InterNodeTransports: []string{}, FatalErrors: []string{}, Sentence: map[bool]string{true: "FALLBACK to TCP: it fell back", false: "No fallback: rc_mlx5 on 1 device."}[*fb],
		Pairs: []watch.Pair{{From: 0, To: 1, Via: "NET/IB/GDRDMA", Channels: 2}, {From: 1, To: 0, Via: "NET/Socket", Channels: 2}},
	})
	if err := r.Exit(RecordExit{Code: 0, WallS: wall}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(t *testing.T, text []byte) Record {
	t.Helper()
	rec, err := ReadRecord(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestRecordComesBack(t *testing.T) {
	rec := read(t, recorded(t, 5<<30, 1000, 60))
	if rec.Sentence() != "No fallback: rc_mlx5 on 1 device." || len(rec.Samples) != 4 || len(rec.Findings) != 1 || rec.Exit.WallS != 60 {
		t.Errorf("read back %+v", rec)
	}
	traffic := rec.Traffic()
	if len(traffic) != 2 || *traffic[0].RDMABytes != 10<<30 || *traffic[0].TCPBytes != 2000 {
		t.Errorf("traffic %+v", traffic)
	}
	var text bytes.Buffer
	if err := Recorded(&text, rec); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"No fallback: rc_mlx5", "10.7 GB", "2.0 kB", "mlx5_0:1", "UCX_NET_DEVICES=mlx5_0:1", "port.mtu", "after 60 s, status 0"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text lacks %q:\n%s", want, text.String())
		}
	}
}

// TestRecordOfAKilledJob: what was written before the end is a record.
func TestRecordOfAKilledJob(t *testing.T) {
	whole := recorded(t, 0, 1<<30, 60)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	rec := read(t, bytes.Join(lines[:len(lines)-3], nil))
	if rec.Exit != nil || rec.Sentence() != "FALLBACK to TCP: it fell back" {
		t.Errorf("without an end: %q", rec.Sentence())
	}
	rec = read(t, whole[:len(whole)-20])
	if !rec.Truncated {
		t.Error("a cut last line is not told")
	}
	for name, text := range map[string]string{"empty": "", "a log": "n1:1:1 [0] NCCL INFO\n", "other JSON": "{\"schema\":\"x\"}\n", "broken inside": string(lines[0]) + "rubbish\n" + string(lines[1])} {
		if _, err := ReadRecord(strings.NewReader(text)); err == nil {
			t.Errorf("%s is read as a record", name)
		}
	}
}

func TestPageIsOneFileAndEscapes(t *testing.T) {
	rec := read(t, recorded(t, 0, 1<<30, 60))
	var b bytes.Buffer
	if err := RecordedHTML(&b, rec, nil); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"<script", "<b>line", "//", "<link", "<img", "@import", "url("} {
		if strings.Contains(page, bad) {
			t.Errorf("page holds %q", bad)
		}
	}
	for _, want := range []string{"FALLBACK to TCP", "prefers-color-scheme:dark", "Content-Security-Policy", "<svg", "m-gdr", "m-tcp", "&lt;b&gt;line"} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %q", want)
		}
	}
}

func TestCompare(t *testing.T) {
	good := read(t, recorded(t, 5<<30, 1000, 60))
	for _, c := range []struct {
		name  string
		now   Record
		worse bool
		what  []string
	}{
		{"the same", read(t, recorded(t, 5<<30, 1000, 62)), false, nil},
		{"slower", read(t, recorded(t, 5<<30, 1000, 70)), true, []string{"time"}},
		{"faster", read(t, recorded(t, 5<<30, 1000, 50)), false, []string{"time"}},
		{"fell back", read(t, recorded(t, 0, 1<<30, 61)), true, []string{"RDMA rate", "fallback", "event fallback"}},
		{"slower over RDMA", read(t, recorded(t, 4<<30, 1000, 61)), true, []string{"RDMA rate"}},
		{"faster over RDMA", read(t, recorded(t, 6<<30, 1000, 61)), false, []string{"RDMA rate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Compare(good, c.now, 0.08)
			var what []string
			for _, ch := range got.Changes {
				what = append(what, ch.What)
			}
			if got.Worse != c.worse || !cmp.Equal(what, c.what) || !got.Same {
				t.Errorf("worse %v changes %v same %v, want %v %v", got.Worse, what, got.Same, c.worse, c.what)
			}
			var b bytes.Buffer
			if err := Compared(&b, got); err != nil || b.Len() == 0 {
				t.Errorf("no text: %v", err)
			}
		})
	}
}

// large is a record of a job on hosts of eight rails each, of which one lost
// packets and carried little, and one carried nothing.
func large(t *testing.T, hosts int) Record {
	t.Helper()
	var b bytes.Buffer
	start := RecordStart{Command: []string{"mpirun", "./a.out"}, Host: "n001.cluster.example", Version: "v1"}
	for h := range hosts {
		start.Hosts = append(start.Hosts, fmt.Sprintf("n%03d.cluster.example", h+1))
	}
	r := NewRecorder(&b, clock(), start)
	for _, at := range []uint64{0, 1} {
		for h, host := range start.Hosts {
			s := watch.Sample{Time: began.Add(time.Duration(at) * time.Minute), Host: host, Netdevs: []watch.NetdevSample{}, TCP: []watch.PeerBytes{}}
			for rail := range 8 {
				c := map[watch.Counter]uint64{watch.TxBytes: at * 1e12, watch.RxBytes: at * 1e12, watch.Retransmits: 0}
				switch {
				case h == 1 && rail == 5:
					c = map[watch.Counter]uint64{watch.TxBytes: at * 2e11, watch.RxBytes: at * 2e11, watch.Retransmits: at * 77}
				case h == 2 && rail == 3:
					c = map[watch.Counter]uint64{watch.TxBytes: 0, watch.RxBytes: 0}
				}
				s.Ports = append(s.Ports, watch.PortSample{HCA: fmt.Sprintf("mlx5_%d", rail), Port: 1, Active: true, Counters: c})
			}
			r.Sample(s)
		}
	}
	r.Event(watch.Event{Time: began.Add(30 * time.Second), ID: "retransmits", Severity: watch.SeverityWarning, Host: start.Hosts[1], Text: "it sends again"})
	no := false
	r.Verdict(watch.Verdict{Schema: watch.SchemaVerdict, Library: "nccl", Fallback: &no, Sentence: "No fallback: IB on 8 devices."})
	if err := r.Exit(RecordExit{WallS: 60}); err != nil {
		t.Fatal(err)
	}
	return read(t, b.Bytes())
}

// TestRailsOfALargeJob: of many ports only those to look at are listed, hosts go
// by what tells them apart, and events are numbered in the timeline.
func TestRailsOfALargeJob(t *testing.T) {
	for _, hosts := range []int{4, 40, 300} {
		rec := large(t, hosts)
		var page, text bytes.Buffer
		if err := RecordedHTML(&page, rec, nil); err != nil {
			t.Fatal(err)
		}
		if err := Recorded(&text, rec); err != nil {
			t.Fatal(err)
		}
		left := fmt.Sprintf("%d more ports have nothing to look at", hosts*8-2)
		for _, out := range []string{page.String(), text.String()} {
			for _, want := range []string{"retransmits 77", left, "n002", "n003"} {
				if !strings.Contains(out, want) {
					t.Errorf("%d hosts: lacks %q in\n%.3000s", hosts, want, out)
				}
			}
		}
		if n := strings.Count(page.String(), "r-trouble\""); hosts <= maxRailHosts && n != 1 {
			t.Errorf("%d hosts: %d cells with trouble", hosts, n)
		}
		if strings.Contains(page.String(), ">n002.cluster.example</td>") || strings.Contains(page.String(), ">n002.cluster.example</th>") {
			t.Errorf("%d hosts: the domain is shown in the tables", hosts)
		}
		if len(page.String()) > 1<<20 {
			t.Errorf("%d hosts: the page is %d bytes long", hosts, page.Len())
		}
		if !strings.Contains(page.String(), `text-anchor="middle">1</text>`) {
			t.Errorf("%d hosts: the event has no number in the timeline", hosts)
		}
	}
}

func TestShortNames(t *testing.T) {
	for _, c := range []struct{ hosts, want []string }{
		{[]string{"n1.a.b", "n2.a.b"}, []string{"n1", "n2"}},
		{[]string{"n1.a", "n1.b"}, []string{"n1.a", "n1.b"}},
		{[]string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.1", "10.0.0.2"}},
		{[]string{"n1", "n1"}, []string{"n1", "n1"}},
	} {
		names := shortNames(c.hosts)
		for i, h := range c.hosts {
			if names[h] != c.want[i] {
				t.Errorf("%v: %q is %q, want %q", c.hosts, h, names[h], c.want[i])
			}
		}
	}
}

func TestRankList(t *testing.T) {
	for _, c := range []struct {
		ranks []int
		want  string
	}{{nil, ""}, {[]int{3}, "3"}, {[]int{0, 1, 2, 5, 7, 8}, "0-2, 5, 7-8"}} {
		if got := rankList(c.ranks); got != c.want {
			t.Errorf("%v: %q, want %q", c.ranks, got, c.want)
		}
	}
}

func TestReadStreamSkipsBanners(t *testing.T) {
	text := append([]byte("Welcome to the cluster\n{not json\n"), recorded(t, 0, 1<<30, 1)...)
	var events, samples, verdicts int
	err := ReadStream(bytes.NewReader(text), StreamHandler{
		Event: func(watch.Event) { events++ }, Sample: func(watch.Sample) { samples++ }, Verdict: func(watch.Verdict) { verdicts++ },
	})
	if err != nil || events != 1 || samples != 4 || verdicts != 1 {
		t.Errorf("events %d samples %d verdicts %d: %v", events, samples, verdicts, err)
	}
}

func TestJobSentence(t *testing.T) {
	yes, no := true, false
	unseen := func(seen, missed int) plan.Look {
		l := plan.Look{Hosts: seen + missed, Seen: seen}
		for i := range missed {
			l.Miss(fmt.Sprintf("n%d", i+1), "connection refused")
		}
		return l
	}
	for _, c := range []struct {
		name string
		v    watch.Verdict
		c    watch.CounterVerdict
		end  JobEnd
		want string
	}{
		{"launcher on one host", watch.Verdict{}, watch.CounterVerdict{}, JobEnd{Hosts: 1, Dialect: cmdline.OpenMPI5}, "Done: one host, so nothing had to cross the fabric."},
		{"plain program", watch.Verdict{}, watch.CounterVerdict{}, JobEnd{Hosts: 4, Dialect: cmdline.Plain}, "Done: no NCCL, UCX or MPI output was seen, so there is nothing to judge."},
		{"plain program that failed", watch.Verdict{}, watch.CounterVerdict{}, JobEnd{Hosts: 1, Dialect: cmdline.Plain, Failed: true}, "Not judged: no NCCL, UCX or MPI output was seen, so there is nothing to judge."},
		{"no rdma anywhere", watch.Verdict{}, watch.CounterVerdict{}, JobEnd{Hosts: 2, RDMA: &no}, "Done: no host of the job has usable RDMA, so there was none to use."},
		{"nothing known", watch.Verdict{}, watch.CounterVerdict{}, JobEnd{Hosts: 2}, "Done: what carried the data is not known: no library said it, and no counters were read."},
		{"nobody could be looked at", watch.Verdict{}, watch.CounterVerdict{}, JobEnd{Hosts: 2, Look: unseen(0, 2)}, "Done: what carried the data is not known: could not look at 2 of 2 hosts (connection refused)."},
		{"nobody could be looked at, and the log tells", watch.Verdict{Library: "nccl", Fallback: &no, Sentence: "No fallback: RoCE."}, watch.CounterVerdict{}, JobEnd{Hosts: 2, Look: unseen(0, 2)}, "No fallback: RoCE."},
		{"some could not be looked at", watch.Verdict{}, watch.CounterVerdict{}, JobEnd{Hosts: 3, Look: unseen(1, 2)}, "Done: what carried the data is not known: no library said it, and no counters were read; looked at 1 of 3 hosts (n[1-2]: connection refused)."},
		{"hosts not known", watch.Verdict{}, watch.CounterVerdict{}, JobEnd{}, "Done: what carried the data is not known: the job's hosts are not known."},
		{"log says fallback", watch.Verdict{Fallback: &yes, Sentence: "FALLBACK to TCP: x"}, watch.CounterVerdict{Fallback: &no}, JobEnd{Hosts: 2}, "FALLBACK to TCP: x"},
		{"counters say fallback", watch.Verdict{}, watch.CounterVerdict{Fallback: &yes, Text: "5 GB by TCP"}, JobEnd{Hosts: 2}, "FALLBACK to TCP: 5 GB by TCP"},
		{"asked for", watch.Verdict{}, watch.CounterVerdict{Fallback: &yes, Intentional: true, Text: "5 GB by TCP"}, JobEnd{Hosts: 2}, "TCP, as was asked for: 5 GB by TCP"},
		{"counters say rdma", watch.Verdict{}, watch.CounterVerdict{Fallback: &no, Text: "RDMA carried 9 GB."}, JobEnd{Hosts: 2}, "No fallback: RDMA carried 9 GB."},
		{"unknown", watch.Verdict{}, watch.CounterVerdict{Text: "no counters"}, JobEnd{Hosts: 2}, "Done: what carried the data is not known: no counters"},
		{"log of one host", watch.Verdict{Library: "nccl", Fallback: &no, Sentence: "No fallback: the job runs on one node."}, watch.CounterVerdict{}, JobEnd{Hosts: 1}, "No fallback: the job runs on one node."},
	} {
		if got := JobSentence(c.v, c.c, c.end); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzReadRecord(f *testing.F) {
	f.Add([]byte(`{"schema":"fabrun/record/v1","time":"2026-11-21T05:00:00Z","start":{"command":["a"]}}` + "\n" + `{"event":{"id":"x"}}`))
	f.Add([]byte(`{"schema":"fabrun/record/v1","start":{}}` + "\n" + `{"verdict":{"pairs":[{"from":-5,"to":3,"via":"P2P"}]}}` + "\n" + `{"plan":{"env":[{}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := ReadRecord(bytes.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := Recorded(&b, rec); err != nil {
			t.Fatal(err)
		}
		if err := RecordedHTML(&b, rec, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(rec); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPageOfAShortJob: an empty timeline says so, fabrun's own variables are
// nobody's, a host has one name, and no text moves the cursor.
func TestPageOfAShortJob(t *testing.T) {
	var rec bytes.Buffer
	r := NewRecorder(&rec, func() time.Time { return began }, RecordStart{Command: []string{"mpirun", "./a.out"}, Host: "n1", Hosts: []string{"n1.cluster", "n2.cluster"}})
	r.Plan([]byte(`{"env":[{"name":"FABRUN_SET","value":"internal","why":"so"},{"name":"NCCL_IB_TC","value":"106","why":"so"}]}`))
	if err := r.Exit(RecordExit{}); err != nil {
		t.Fatal(err)
	}
	job, err := ReadRecord(&rec)
	if err != nil {
		t.Fatal(err)
	}
	var page, text strings.Builder
	if err := RecordedHTML(&page, job, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page.String(), "Nothing to draw") {
		t.Error("an empty timeline says nothing")
	}
	job.Events = []watch.Event{
		{Time: began, ID: "stall", Severity: watch.SeverityError, Host: "n1", Text: "as it calls itself\x1b[2J"},
		{Time: began, ID: "stall", Severity: watch.SeverityError, Host: "n1.cluster", Text: "as the job calls it"},
		{Time: began, ID: "stall", Severity: watch.SeverityError, Host: "n11", Text: "another one"},
	}
	page.Reset()
	if err := errors.Join(RecordedHTML(&page, job, nil), Recorded(&text, job)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{page.String(), text.String()} {
		if strings.Contains(s, "FABRUN_SET") || !strings.Contains(s, "NCCL_IB_TC") {
			t.Error("fabrun's own variables are there, or the libraries' are not")
		}
		if strings.Contains(s, "\x1b") {
			t.Error("an escape is there")
		}
	}
	names := job.shortNames(nil)
	if names["n1"] != names["n1.cluster"] || names["n1"] == "" || names["n11"] == names["n1"] {
		t.Errorf("names %v", names)
	}
}

// TestRecordIsBounded: of a record with any number of events and findings the
// first thousands are kept, and the others counted.
func TestRecordIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"schema":"fabrun/record/v1","time":"2026-11-03T10:00:00Z","start":{"command":["a"],"host":"n","version":"x","hosts":["n"]}}` + "\n")
	for range maxRecordWords + 7 {
		b.WriteString(`{"time":"2026-11-03T10:00:00Z","event":{"time":null,"id":"x","severity":"note","host":null,"rank":null,"text":"again"}}` + "\n")
	}
	rec, err := ReadRecord(strings.NewReader(b.String()))
	if err != nil || len(rec.Events) != maxRecordWords || rec.LeftOut != 7 {
		t.Fatalf("%d events, %d left out, %v", len(rec.Events), rec.LeftOut, err)
	}
	var text strings.Builder
	if err := Recorded(&text, rec); err != nil || !strings.Contains(text.String(), "7 more lines of the record are left out") {
		t.Errorf("%v: it is not said", err)
	}
}
