package watch

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUnknownIsNull: what a log does not tell is null in JSON, and comes back as it
// was.
func TestUnknownIsNull(t *testing.T) {
	v := mustScan(t, "Using network Socket\n"+warn+"NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129\n")
	v.Events = append(v.Events, Event{ID: "x", Severity: SeverityNote, Text: "y"})
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"version":null`, `"time":null`, `"host":null`, `"library":"nccl"`, `"host":"n1"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("lacks %s: %s", want, text)
		}
	}
	for _, bad := range []string{`:""`, "0001-01-01"} {
		if strings.Contains(string(text), bad) {
			t.Errorf("has %s: %s", bad, text)
		}
	}
	var back Verdict
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(v, back); d != "" {
		t.Errorf("(-written +read):\n%s", d)
	}
}
