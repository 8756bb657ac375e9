package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
)

// keptRecord is a job that lost a rail, got it back, and had a GID changed.
func keptRecord() Record {
	began := time.Date(2026, 11, 3, 22, 30, 0, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	back, ended, no := at(300), at(600), false
	return Record{
		Start: RecordStart{Command: []string{"mpirun", "x"}, Hosts: []string{"n1", "n2"}}, Began: began, Ended: &ended, Exit: &RecordExit{WallS: 600},
		Events:   []watch.Event{{Time: at(130), ID: contract.EventRailLost, Severity: watch.SeverityWarning, Host: "n2", Text: "8 rails promised, 7 since 22:32:10 (mlx5_3:1 on n2: link down), 50 GB/s fewer."}},
		Counters: &watch.CounterVerdict{Fallback: &no, Text: "RDMA carried 1 TB."},
		Kept: &contract.Kept{
			Promised: 8, Kept: 7, Text: "8 rails promised, 7 since 22:32:10.",
			Losses: []contract.Loss{{From: at(130), Until: &back, Host: "n2", Port: "mlx5_3:1", Why: "link <down>"}},
			GIDs:   []contract.GIDChange{{From: at(310), Host: "n2", Port: "mlx5_3:1", Index: 3, Was: "10.3.0.7"}},
			Price:  &contract.Price{Basis: []string{"bytes by the ports' own counters", "least: line rate"}},
		},
	}
}

func TestKeptInReports(t *testing.T) {
	rec := keptRecord()
	if want := "No fallback: RDMA carried 1 TB. 8 rails promised, 7 since 22:32:10."; rec.Sentence() != want {
		t.Errorf("the verdict is %q, want %q", rec.Sentence(), want)
	}
	var text, page bytes.Buffer
	if err := Recorded(&text, rec); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rails      8 promised, 7 at the end, lost or slower once", "price by   bytes by the ports' own counters; least: line rate"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	if err := RecordedHTML(&page, rec, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<p class="verdict warn">No fallback: RDMA carried 1 TB.<span class="kept">8 rails promised, 7 since 22:32:10.</span></p>`,
		`<rect class="lost"`, `<title>mlx5_3:1 on n2: link &lt;down&gt;</title>`, `<rect class="stale"`, "a rail lost, or slower", "a GID that changed",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	// A record of an older fabrun, or of a healthy job, shows none of it.
	for _, kept := range []*contract.Kept{nil, {Promised: 8, Kept: 8}} {
		rec.Kept = kept
		page.Reset()
		if err := RecordedHTML(&page, rec, nil); err != nil {
			t.Fatal(err)
		}
		for _, not := range []string{`<rect class="lost"`, "a rail lost", `class="kept"`, "verdict warn"} {
			if strings.Contains(page.String(), not) {
				t.Errorf("the page of a job that kept its rails has %q", not)
			}
		}
	}
}
