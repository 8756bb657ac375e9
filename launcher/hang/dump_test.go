package hang

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/watch"
)

// dumpJSON is a dump as torch writes JSON (FlightRecorder.cpp, dump_json): the
// status in texts, the entries in numbers.
func dumpJSON(op string, enqueued, done int) string {
	return fmt.Sprintf(`{"version": "2.4", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
 "pg_status": {"0": {"last_enqueued_collective": "%d", "last_started_collective": "%[1]d", "last_completed_collective": "%[2]d"}},
 "entries": [{"record_id": 1, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": %[2]d, "profiling_name": "nccl:all_reduce", "state": "completed", "is_p2p": false},
 {"record_id": 2, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": %[1]d, "profiling_name": "nccl:%[3]s", "state": %[4]q, "is_p2p": false}]}`, enqueued, done, op, map[bool]string{true: "completed", false: "scheduled"}[enqueued == done])
}

func TestParseDump(t *testing.T) {
	want := []DumpGroup{{Name: "0", About: "default_pg", Ranks: []int{0, 1}, Enqueued: 13, Done: 12, Op: "all_reduce", OpNumber: 13}}
	texts := map[string]string{"JSON": dumpJSON("all_reduce", 13, 12)}
	for _, name := range []string{"dump.pickle2", "dump.pickle4"} { // by Python's pickle, of the same values
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	for name, text := range texts {
		got, err := ParseDump([]byte(text))
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
	for name, c := range map[string][2]string{
		"empty":                {"", "empty"},
		"a program":            {"\x80\x02cposix\nsystem\nq\x00X\x02\x00\x00\x00idq\x01\x85q\x02Rq\x03.", "instruction 0x63 is none of plain values"},
		"an object":            {"\x80\x04\x8c\x02os\x8c\x06system\x93.", "instruction 0x93 is none of plain values"},
		"an extension":         {"\x80\x02\x82\x01.", "instruction 0x82"},
		"cut off":              {texts["dump.pickle2"][:100], "cut off"},
		"a length beyond all":  {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", "cut off"},
		"a list of itself":     {"\x80\x02]q\x00h\x00a.", "holds itself"},
		"other values":         {"\x80\x02K\x01.", "no dump"},
		"another JSON":         {`{"traceEvents": []}`, "no process groups"},
		"no value":             {"\x80\x02.", "nothing on the stack"},
		"a mark for a value":   {"\x80\x02(.", "a mark"},
		"what was never kept":  {"\x80\x02h\x07.", "no value 7"},
		"odd number of items":  {"\x80\x02}(K\x01u.", "no dictionary"},
		"appended to a number": {"\x80\x02K\x01K\x02a.", "no list"},
	} {
		if got, err := ParseDump([]byte(c[0])); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %+v, %v, want an error with %q", name, got, err, c[1])
		}
	}
	// Ten lists of ten of the one before, nine deep: a thousand million values in
	// a few hundred bytes.
	bomb := "\x80\x02K\x01"
	for range 9 {
		bomb += "q\x000](" + strings.Repeat("h\x00", 10) + "e"
	}
	if _, err := ParseDump([]byte(bomb + ".")); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a bomb: %v", err)
	}
	for v, want := range map[string]int64{"\x8a\x02\x00\x01.": 256, "\x8a\x01\xff.": -1, "\x8a\x00.": 0, "J\xfe\xff\xff\xff.": -2, "M\x01\x02.": 513} {
		if got, err := unpickle([]byte(v)); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %d", v, got, err, want)
		}
	}
}

func FuzzParseDump(f *testing.F) {
	f.Add([]byte(dumpJSON("all_reduce", 13, 12)))
	f.Add([]byte(`{"pg_status":{},"pg_config":{"":{"ranks":"[1,,]"}},"entries":[{"process_group":[7],"collective_seq_id":1}]}`))
	for _, name := range []string{"dump.pickle2", "dump.pickle4"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		groups, err := ParseDump(text)
		if err == nil && len(groups) > maxGroups {
			t.Errorf("%d groups", len(groups))
		}
	})
}

// TestTorchSays: what the dumps of a job's ranks say together.
func TestTorchSays(t *testing.T) {
	groups := func(text string) []DumpGroup {
		g, err := ParseDump([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	both := func(a, b []DumpGroup) []Dump {
		return []Dump{{Rank: 0, File: "/tmp/nccl_trace_rank_0", Groups: a}, {Rank: 1, File: "/tmp/nccl_trace_rank_1", Groups: b}}
	}
	waiting := groups(dumpJSON("all_reduce", 13, 12))
	for _, c := range []struct {
		name  string
		dumps []Dump
		want  string
		rank  int
	}{
		{"one is behind", both(waiting, groups(dumpJSON("all_reduce", 12, 12))), "(/tmp/nccl_trace_rank_0 on node01 and 1 more): rank 1 of default_pg is behind: it has not come to all_reduce 13, and the others have.", 1},
		{"another operation", both(waiting, groups(dumpJSON("all_gather", 13, 12))), "in default_pg rank 1 is in all_gather 13 where rank 0 is in all_reduce.", 1},
		{"one gave none", both(waiting, nil)[:1], "of rank 1 of default_pg there is no dump, and the others are in all_reduce 13.", -1},
		{"all alike", both(waiting, waiting), "have come equally far in every process group", -1},
		{"unread", []Dump{{Rank: 4, File: "/tmp/x4", Why: "byte 2: instruction 0x63 is none of plain values"}}, "torch has written what its flight recorder knows (/tmp/x4 on node01); that of rank 4 was not read: byte 2", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := New(DefaultAfter)
			var told []watch.Event
			at := time.Date(2026, 11, 1, 22, 0, 0, 0, time.UTC)
			for i := range 6 {
				l := Look{Time: at.Add(time.Duration(i) * step), Host: "node01"}
				if i == 1 {
					l.Dumps = c.dumps
				}
				told = append(told, j.Add(l)...)
			}
			if len(told) != 1 || told[0].ID != EventTorch || !strings.Contains(told[0].Text, c.want) {
				t.Fatalf("%+v\nwant %q", told, c.want)
			}
			if r := told[0].Rank; (r != nil) != (c.rank >= 0) || r != nil && *r != c.rank {
				t.Errorf("rank %v, want %d", r, c.rank)
			}
		})
	}
}
