// Package realdata finds the collection of real topologies, logs and tool
// outputs that lies beside the checkout, and counts how many of its truths a
// parser meets. Tests skip, with the reason, where it is absent; make realdata
// prints the counts.
package realdata

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Dir returns the directory of one kind ("logs", "gids", …), or skips the test.
func Dir(tb testing.TB, kind string) string {
	tb.Helper()
	_, self, _, ok := runtime.Caller(0)
	if !ok {
		tb.Skip("cannot tell where the checkout is")
	}
	dir := filepath.Join(filepath.Dir(self), "..", "..", "..", "shared", "realdata", kind)
	if _, err := os.Stat(dir); err != nil {
		tb.Skipf("no real data beside the checkout: %v", err)
	}
	return dir
}

// Tally counts one column of the accuracy table.
type Tally struct {
	Set        string // "logs: fallback"
	right, all int
	misses     []string
}

// Count adds one case; why is kept for the table when it is wrong.
func (t *Tally) Count(right bool, name, why string) {
	t.all++
	if right {
		t.right++
		return
	}
	t.misses = append(t.misses, name+": "+why)
}

// Print writes the column, and fails the test when a case was missed.
func (t *Tally) Print(tb testing.TB) {
	tb.Helper()
	t.show(tb, tb.Errorf)
}

// Log writes the column and what was missed, of cases that may be missed.
func (t *Tally) Log(tb testing.TB) {
	tb.Helper()
	t.show(tb, tb.Logf)
}

func (t *Tally) show(tb testing.TB, miss func(format string, args ...any)) {
	tb.Helper()
	tb.Logf("realdata: %-32s %d/%d", t.Set, t.right, t.all)
	for _, m := range t.misses {
		miss("realdata: %s missed %s", t.Set, m)
	}
}
