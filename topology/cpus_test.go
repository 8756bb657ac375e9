package topology

import (
	"slices"
	"testing"
)

func TestCPULists(t *testing.T) {
	for in, want := range map[string]string{ // "!": an error
		"0-3,8,16-17": "0-3,8,16-17", "8,0-3\n": "0-3,8", "1,1,2": "1-2", "": "", "5": "5", "0-": "!", "-1": "!", "3-1": "!", "a": "!", "0-99999999": "!",
	} {
		cpus, err := ParseCPUs(in)
		if got := FormatCPUs(cpus); (err != nil) != (want == "!") || err == nil && got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func FuzzParseCPUs(f *testing.F) {
	for _, s := range []string{"0-3,8", "", "1,1", "65535", ",,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, err := ParseCPUs(s)
		if err != nil {
			return
		}
		again, err := ParseCPUs(FormatCPUs(cpus))
		if err != nil || !slices.Equal(cpus, again) {
			t.Errorf("%q: %v, then %v, %v", s, cpus, again, err)
		}
	})
}
