package watch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fabrun/testdata/realdata"
)

// allLogs are the finished logs of both collections, whole or excerpts, and our own.
func allLogs(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{"own": []byte(twoNodeLog)}
	for _, kind := range []string{"logs", "logs2"} {
		files, err := filepath.Glob(filepath.Join(realdata.Dir(t, kind), "*.log"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no logs in %s: %v", kind, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out[kind+"/"+filepath.Base(f)] = text
		}
	}
	return out
}

func accuses(v Verdict) bool { return v.Fallback != nil && *v.Fallback && !v.Intentional }

// TestNoPrefixAccuses: a log that is still being written never says a fallback,
// several nodes or one node where the whole log does not: what has not come yet
// proves nothing. What a prefix clears speaks of what it has seen.
func TestNoPrefixAccuses(t *testing.T) {
	prefixes := 0
	logs := allLogs(t)
	for name, text := range logs {
		whole, err := Scan(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		accused := false
		w := New(Options{OnEvent: func(e Event) {
			accused = accused || e.ID == "fallback" && e.Severity == SeverityError
		}})
		s := w.Source(name)
		bad := 0
		for _, line := range bytes.SplitAfter(text, []byte("\n")) {
			if len(line) == 0 {
				continue
			}
			_, _ = s.Write(line)
			prefixes++
			v := w.Verdict()
			said := ""
			switch {
			case accuses(v) && !accuses(whole), accused && !accuses(whole):
				said = "a fallback"
			case v.Fallback != nil && *v.Fallback && (whole.Fallback == nil || !*whole.Fallback):
				said = "TCP"
			case v.NNodes != nil && *v.NNodes == 1 && whole.NNodes != nil && *whole.NNodes != 1:
				said = "one node"
			case v.NNodes != nil && *v.NNodes > 1 && (whole.NNodes == nil || *whole.NNodes < *v.NNodes):
				said = "several nodes"
			}
			if said == "" && v.Fallback != nil && !*v.Fallback && !strings.Contains(v.Sentence, "in what was seen") && len(v.FatalErrors) == 0 &&
				(accuses(whole) || v.RanksSeen == nil || whole.RanksSeen != nil && *whole.RanksSeen > *v.RanksSeen) {
				said = v.Sentence
			}
			if said != "" {
				if bad++; bad <= 3 {
					t.Errorf("%s: %s is said at %q, the whole log: %s", name, said, bytes.TrimSpace(line), digest(whole))
				}
			}
		}
	}
	t.Logf("%d prefixes of %d logs", prefixes, len(logs))
}
