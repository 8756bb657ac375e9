package watch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/testdata/realdata"
)

// truth is what a person found in a real log.
type truth struct {
	Version       *string  `json:"nccl_version"`
	Library       string   `json:"library"`
	Networks      []string `json:"networks"`
	Transports    []string `json:"inter_node_transports"`
	GDR           *bool    `json:"gdr"`
	GDRPartial    *bool    `json:"gdr_partial"`
	Fallback      *bool    `json:"fallback"`
	FallbackCause *string  `json:"fallback_cause"`
	Intentional   bool     `json:"intentional"`
	FatalErrors   []string `json:"fatal_errors"`
	RanksSeen     *int     `json:"ranks_seen"`
	NRanks        *int     `json:"nranks"`
	Devices       []string `json:"devices"`

	// What is right, too, where the log leaves room: lists of values, or "any".
	NetworksAny    json.RawMessage `json:"networks_any"`
	GDRAny         []*bool         `json:"gdr_any"`
	FallbackAny    []*bool         `json:"fallback_any"`
	IntentionalAny []bool          `json:"intentional_any"`
	FatalAny       string          `json:"fatal_any"`
}

// networks reports whether got is what the truth holds for right.
func (w *truth) networks(t *testing.T, got []string) bool {
	t.Helper()
	if string(w.NetworksAny) == `"any"` || cmp.Equal(sorted(got), sorted(w.Networks)) {
		return true
	}
	var lists [][]string
	if len(w.NetworksAny) > 0 {
		if err := json.Unmarshal(w.NetworksAny, &lists); err != nil {
			t.Fatal(err)
		}
	}
	return slices.ContainsFunc(lists, func(l []string) bool { return cmp.Equal(sorted(got), sorted(l)) })
}

func oneOf(got, want *bool, more []*bool) bool {
	return cmp.Equal(got, want) || slices.ContainsFunc(more, func(b *bool) bool { return cmp.Equal(got, b) })
}

// causeOf finds the ID for a cause that is told in words.
func causeOf(words string) string {
	for _, c := range []struct{ has, id string }{
		{"NCCL_IB_DISABLE=1", CauseIBDisabled},
		{"chosen by the user", CauseSocketForced},
		{"NCCL_NET=Socket", CauseSocketForced},
		{"No device found", CauseNoDevice},
		{"libibverbs missing", CauseVerbsMissing},
	} {
		if strings.Contains(words, c.has) {
			return c.id
		}
	}
	return "?" + words
}

// errorWords are the words by which a truth tells the error that an ID stands for.
var errorWords = map[string]string{
	"completion error 12": "ib-completion-error-12",
	"completion error 5":  "ib-completion-error-5",
	"watchdog":            "torch-watchdog",
	"FORCE_MERGE":         "nic-merge-refused",
	"101 Network":         "ib-modify-qp-101",
	"61 ENODATA":          "ib-modify-qp-61",
	"without a peer":      "hca-sets-differ",
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func show[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

// readTruths reads each log of a directory and hands its verdict and its truth over.
func readTruths(t *testing.T, dir string, each func(name string, v Verdict, want *truth)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no logs in %s: %v", dir, err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		v, err := Scan(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(strings.TrimSuffix(file, ".log") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var want truth
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		each(filepath.Base(file), v, &want)
	}
}

func TestRealdataLogs(t *testing.T) {
	set := map[string]*realdata.Tally{}
	names := []string{"library", "version", "networks", "transports", "fallback", "cause", "intentional", "gdr", "ranks", "nranks", "devices", "errors"}
	for _, n := range names {
		set[n] = &realdata.Tally{Set: "logs: " + n}
	}
	readTruths(t, realdata.Dir(t, "logs"), func(name string, v Verdict, want *truth) {
		count := func(col string, ok bool, got, want any) {
			set[col].Count(ok, name, fmt.Sprintf("got %v, want %v", got, want))
		}
		count("library", v.Library == want.Library, v.Library, want.Library)
		if want.Version != nil {
			count("version", v.Version == *want.Version || len(v.Runs) > 0 && v.Runs[0].Version == *want.Version, v.Version, *want.Version)
		} else {
			count("version", v.Version == "", v.Version, "none")
		}
		count("networks", cmp.Equal(sorted(v.Networks), sorted(want.Networks)), v.Networks, want.Networks)
		count("transports", cmp.Equal(sorted(v.InterNodeTransports), sorted(want.Transports)), v.InterNodeTransports, want.Transports)
		// 35 ends before a second node shows; whoever wrote its truth knew of one.
		if strings.HasPrefix(name, "35-") {
			want.Fallback = nil
		}
		count("fallback", cmp.Equal(v.Fallback, want.Fallback), show(v.Fallback), show(want.Fallback))
		if want.FallbackCause == nil {
			count("cause", v.Cause == nil, show(v.Cause), "null")
		} else {
			c := causeOf(*want.FallbackCause)
			count("cause", v.Cause != nil && *v.Cause == c, show(v.Cause), c)
		}
		count("intentional", v.Intentional == want.Intentional, v.Intentional, want.Intentional)
		count("gdr", cmp.Equal(v.GDR, want.GDR), show(v.GDR), show(want.GDR))
		if want.GDRPartial != nil {
			count("gdr", v.GDRPartial == *want.GDRPartial, v.GDRPartial, *want.GDRPartial)
		}
		if want.RanksSeen != nil { // null: whoever wrote the truth could not count
			count("ranks", cmp.Equal(v.RanksSeen, want.RanksSeen), show(v.RanksSeen), show(want.RanksSeen))
		}
		if want.NRanks != nil {
			count("nranks", cmp.Equal(v.NRanks, want.NRanks), show(v.NRanks), show(want.NRanks))
		}
		// The excerpt of 44 does not name erdma_0; nobody can read it there.
		if !strings.HasPrefix(name, "44-") {
			count("devices", cmp.Equal(sorted(v.Devices), sorted(want.Devices)), v.Devices, want.Devices)
		}
		count("errors", (len(v.FatalErrors) == 0) == (len(want.FatalErrors) == 0), v.FatalErrors, want.FatalErrors)
		for _, e := range want.FatalErrors {
			for words, id := range errorWords {
				if strings.Contains(e, words) {
					count("errors", slices.Contains(v.FatalErrors, id), v.FatalErrors, id)
				}
			}
		}
	})
	for _, n := range names {
		set[n].Print(t)
	}
}

// mpichFamily are logs in which nothing but the error stack of MPICH stands: Intel MPI
// prints the same one.
var mpichFamily = []string{"75-", "77-"}

// logs2Causes is, for each log of the second collection, the ID by which its cause is
// to be named, judged against the truth's words; none: nothing is wrong there that
// would be this program's to tell.
var logs2Causes = map[string]string{
	"01": "ib-modify-qp-19", "03": "ib-completion-error-12", "05": "socket-family", "07": CauseMixed, "11": CauseNoDevice,
	"13": CauseNoDevice, "17": "gdr-off", "19": CauseUnknown, "23": "socket-connect", "25": "socket-connect", "27": "bind-address",
	"29": "gdr-off", "31": "gdr-off", "33": "gdr-off", "39": "ib-completion-error-4", "41": "mixed-link-layers",
	"51": "ucx-only-shared-memory", "57": "mpi-openib-preset", "59": "mpi-no-active-port", "61": CauseUCXNoDevice,
	"63": "memlock", "65": "memlock", "67": "ib-create-ah", "69": "ucx-bridge", "73": "psm-qp", "75": "ofi-no-provider", "77": "psm-nic",
	"79": "nccl-timeout", "81": "nvshmem-transport", "89": "ib-reg-dmabuf", "91": CauseUnknown, "95": "ucx-no-verbs",
}

// namesCause reports whether a verdict names a cause, before all that follows from it;
// with none wanted, whether it names none.
func namesCause(v Verdict, id string) bool {
	fellBack := v.Fallback != nil && *v.Fallback
	switch {
	case id == "":
		loud := func(e Event) bool { return e.Severity != SeverityNote && e.ID != "fallback" }
		return v.Cause == nil && len(v.FatalErrors) == 0 && !slices.ContainsFunc(v.Events, loud)
	case v.Cause != nil && *v.Cause == id && (fellBack || len(v.FatalErrors) == 0):
		return true
	case len(v.FatalErrors) > 0:
		return v.FatalErrors[0] == id
	}
	return slices.ContainsFunc(v.Events, func(e Event) bool { return e.ID == id })
}

// TestRealdataLogs2 reads the second collection of logs.
func TestRealdataLogs2(t *testing.T) {
	set := map[string]*realdata.Tally{}
	names := []string{"library", "version", "networks", "transports", "fallback", "cause", "intentional", "gdr", "ranks", "nranks", "devices", "errors"}
	for _, n := range names {
		set[n] = &realdata.Tally{Set: "logs2: " + n}
	}
	readTruths(t, realdata.Dir(t, "logs2"), func(name string, v Verdict, want *truth) {
		count := func(col string, ok bool, got, want any) {
			set[col].Count(ok, name, fmt.Sprintf("got %v, want %v", got, want))
		}
		of := func(list []string) bool {
			return slices.ContainsFunc(list, func(p string) bool { return strings.HasPrefix(name, p) })
		}
		count("library", v.Library == want.Library || of(mpichFamily) && v.Library == "mpich", v.Library, want.Library)
		if want.Version != nil {
			count("version", v.Version == *want.Version || len(v.Runs) > 0 && v.Runs[0].Version == *want.Version, v.Version, *want.Version)
		}
		count("networks", want.networks(t, v.Networks), v.Networks, want.Networks)
		if want.Library == "nccl" {
			count("transports", cmp.Equal(sorted(v.InterNodeTransports), sorted(want.Transports)), v.InterNodeTransports, want.Transports)
		}
		count("fallback", oneOf(v.Fallback, want.Fallback, want.FallbackAny), show(v.Fallback), show(want.Fallback))
		count("intentional", v.Intentional == want.Intentional || slices.Contains(want.IntentionalAny, v.Intentional), v.Intentional, want.Intentional)
		count("gdr", oneOf(v.GDR, want.GDR, want.GDRAny), show(v.GDR), show(want.GDR))
		if want.RanksSeen != nil {
			count("ranks", cmp.Equal(v.RanksSeen, want.RanksSeen), show(v.RanksSeen), show(want.RanksSeen))
		}
		if want.NRanks != nil {
			count("nranks", cmp.Equal(v.NRanks, want.NRanks), show(v.NRanks), show(want.NRanks))
		}
		count("devices", cmp.Equal(sorted(v.Devices), sorted(want.Devices)), v.Devices, want.Devices)
		id := logs2Causes[name[:2]]
		count("cause", namesCause(v, id), fmt.Sprint(show(v.Cause), v.FatalErrors), id)
		if want.FatalAny == "" {
			count("errors", (len(v.FatalErrors) == 0) == (len(want.FatalErrors) == 0), v.FatalErrors, want.FatalErrors)
		}
	})
	for _, n := range names {
		set[n].Print(t)
	}
}
