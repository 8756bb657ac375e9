package hosts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExpand(t *testing.T) {
	for _, tc := range []struct{ name, expr, want string }{
		{"plain", "n1", "n1"},
		{"order and duplicates kept", "b,a,b", "b a b"},
		{"separators", "a,,b  c\t,d\n", "a b c d"},
		{"brackets alone", "[1-3]", "1 2 3"},
		{"width of the lower bound", "n[09-11],m[01-3],k[8-010]", "n09 n10 n11 m01 m02 m03 k8 k9 k10"},
		{"last bracket fastest", "n[0-1][0-1]", "n00 n01 n10 n11"},
		{"text between", "b[0-1]c[2-3]", "b0c2 b0c3 b1c2 b1c3"},
		{"text behind", "a[1-2]-ib,a[1-2].dom", "a1-ib a2-ib a1.dom a2.dom"},
		{"three brackets and text", "r[1-2]c[1,3]n[08-09]x", "r1c1n08x r1c1n09x r1c3n08x r1c3n09x r2c1n08x r2c1n09x r2c3n08x r2c3n09x"},
		{"a dash is no range outside", "n1-3", "n1-3"},
		{"several widths in a bracket", "n[1,02,003-4]", "n1 n02 n003 n004"},
		{"blanks in brackets", "n[1, 3 - 4]", ""},
		{"blanks around numbers", "n[1, 3]", "n1 n3"},
		{"repeats in a bracket", "n[1,1-2]", "n1 n1 n2"},
		{"zero", "n[0-0]", "n0"},
		{"largest number", "n[999999999999999998-999999999999999999]", "n999999999999999998 n999999999999999999"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Expand(tc.expr)
			if tc.want == "" {
				if err == nil {
					t.Fatalf("Expand(%q) = %q, want an error", tc.expr, got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
			back, err := Expand(Compress(got))
			if err != nil || !cmp.Equal(got, back) {
				t.Errorf("Compress gave %q, which expands to %q, %v", Compress(got), back, err)
			}
		})
	}
}

func TestExpandErrors(t *testing.T) {
	for _, tc := range []struct{ name, expr, want string }{
		{"never closed", "a,host[1-", `host list "a,host[1-": character 7: '[' is never closed`},
		{"stray", "host1]]", `host list "host1]]": character 6: ']' without '['`},
		{"nested", "n[[1-2],3]", `host list "n[[1-2],3]": character 3: brackets cannot be nested`},
		{"descends", "host[3-1]", `host list "host[3-1]": character 6: "3-1": a range cannot descend`},
		{"letters", "host[a-c]", `host list "host[a-c]": character 6: 'a' in a range: only decimal numbers can be there`},
		{"empty", "host[]", `host list "host[]": character 6: empty range in brackets`},
		{"empty part", "host[1,,2]", `host list "host[1,,2]": character 8: empty range in brackets`},
		{"half range", "host[1-]", `host list "host[1-]": character 8: a number is missing in the range`},
		{"steps by colon", "host[1-10:3]", `host list "host[1-10:3]": character 6: "1-10:3": ranges have no steps in this grammar`},
		{"steps by slash", "host[1-10/3]", `host list "host[1-10/3]": character 6: "1-10/3": ranges have no steps in this grammar`},
		{"boxes", "bgl[000x733]", `host list "bgl[000x733]": character 5: "000x733": boxes of multi-dimensional systems (base 36) are not supported`},
		{"huge", "host[1-1000000000]", `host list "host[1-1000000000]": character 6: "1-1000000000": more than 1048576 hosts`},
		{"huge product", "n[1-2000][1-2000]", `host list "n[1-2000][1-2000]": character 1: more than 1048576 hosts`},
		{"long number", "n[1234567890123456789]", `host list "n[1234567890123456789]": character 3: "1234567890123456789" has more than 18 digits`},
		{"option", "a,-oProxyCommand=x", `host list "a,-oProxyCommand=x": character 3: a host name cannot begin with '-'`},
		{"shell", "a;rm", `host list "a;rm": character 2: ';' cannot be in a host name`},
		{"no hosts", " , ", `host list " , ": no hosts`},
		{"nothing", "", `host list "": no hosts`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Expand(tc.expr)
			if err == nil || err.Error() != tc.want {
				t.Errorf("Expand(%q)\n got %v\nwant %s", tc.expr, err, tc.want)
			}
		})
	}
	if _, err := Expand(""); !errors.Is(err, ErrNoHosts) {
		t.Errorf("Expand of nothing: %v is not ErrNoHosts", err)
	}
}

func TestParseList(t *testing.T) {
	for _, tc := range []struct{ name, expr, want string }{
		{"names", "node[01-03],login", "node01:? node02:? node03:? login:?"},
		{"slots", "a:4,n[1-2]:8", "a:4 n1:8 n2:8"},
		{"addresses", "10.1.4.[1-3]", "10.1.4.1:? 10.1.4.2:? 10.1.4.3:?"},
		{"addresses with slots", "10.1.[4-5].1:2", "10.1.4.1:2 10.1.5.1:2"},
		{"ipv6", "fd00::1,[fd00::2],[fd00::3]:4", "fd00::1:? fd00::2:? fd00::3:4"},
		{"mentions are slots", "a,b,a", "a:2 b:1"},
		{"mention and number", "a:2,b:3,a", "a:3 b:3"},
		{"mentions of overlapping ranges", "n[1-2,2]", "n1:1 n2:2"},
		{"same name from two brackets", "n[1,11][1,11]", "n11:1 n111:2 n1111:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := ParseList(tc.expr)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, strings.Join(spell(a.Hosts), " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
	a, err := ParseList("10.1.4.[1-12]")
	if err != nil || a.Hosts[11].Address != "10.1.4.12" {
		t.Errorf("addresses are not recognised: %v %v", a, err)
	}
}

func TestParseListErrors(t *testing.T) {
	for _, tc := range []struct{ name, expr, want string }{
		{"slots not a number", "a:b", `host list "a:b": character 3: slots of "a": "b" is not a number of slots (1 to 1048576)`},
		{"no slots", "a:", `host list "a:": character 3: slots of "a": "" is not a number of slots (1 to 1048576)`},
		{"no host", "a,:4", `host list "a,:4": character 3: slots without a host`},
		{"zero slots", "a:0", `host list "a:0": character 3: slots of "a": "0" is not a number of slots (1 to 1048576)`},
		{"user", "me@a", `host list "me@a": character 3: user@host is not taken here: name the user in the ssh configuration`},
		{"no address", "10.1.4.300", `host list "10.1.4.300": character 1: "10.1.4.300" is not an IPv4 address`},
		{"octal", "10.1.4.[01-02]", `host list "10.1.4.[01-02]": character 1: "10.1.4.01" is not an IPv4 address`},
		{"bare ipv6 with slots", "fd00::zz:4", `host list "fd00::zz:4": character 5: more than one ':': an IPv6 address with slots is written [ADDRESS]:SLOTS`},
		{"bad ipv6", "[fd00::zz]:4", `host list "[fd00::zz]:4": character 2: "fd00::zz" is not an IPv6 address`},
		{"text behind ipv6", "[fd00::1]x", `host list "[fd00::1]x": character 10: only :SLOTS can follow an address in brackets`},
		{"steps", "n[1-10:3]", `host list "n[1-10:3]": character 7: ':' inside brackets: slots stand behind them, and ranges have no steps`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseList(tc.expr)
			if err == nil || err.Error() != tc.want {
				t.Errorf("ParseList(%q)\n got %v\nwant %s", tc.expr, err, tc.want)
			}
		})
	}
}

func TestCompress(t *testing.T) {
	for _, tc := range []struct{ name, names, want string }{
		{"range", "n1 n2 n3", "n[1-3]"},
		{"padding", "n08 n09 n10 n11", "n[08-11]"},
		{"width changes", "n9 n10 n010", "n[9-10,010]"},
		{"only the end folds", "n1-ib n2-ib", "n1-ib,n2-ib"},
		{"order kept", "b2 a1 a2 b1", "b2,a[1-2],b1"},
		{"repeats", "n1 n1 n2", "n[1,1-2]"},
		{"down", "n3 n2 n1", "n[3,2,1]"},
		{"addresses", "10.1.4.1 10.1.4.2", "10.1.4.[1-2]"},
		{"none", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Compress(strings.Fields(tc.names))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCompressRoundTrip holds the law Expand(Compress(names)) == names over
// random lists.
func TestCompressRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var names []string
		for range 1 + r.IntN(8) {
			got, err := Expand(randomItem(r, true))
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, got...)
		}
		text := Compress(names)
		back, err := Expand(text)
		if err != nil || !cmp.Equal(names, back) {
			t.Fatalf("Compress(%q) = %q, which expands to %q, %v", names, text, back, err)
		}
	}
}

// randomItem makes a valid item of a node list of at most a few hundred names.
func randomItem(r *rand.Rand, suffix bool) string {
	prefixes := []string{"n", "node", "gpu-", "rack1_", "a00", "x-1-", "cn", "", "Z", "p5-dy-gpu-"}
	var b strings.Builder
	b.WriteString(prefixes[r.IntN(len(prefixes))])
	brackets := r.IntN(4)
	if brackets == 0 {
		fmt.Fprintf(&b, "h%d", r.IntN(200))
		return b.String()
	}
	for i := range brackets {
		b.WriteByte('[')
		for j := range 1 + r.IntN(3) {
			if j > 0 {
				b.WriteByte(',')
			}
			lo := r.IntN(120)
			fmt.Fprintf(&b, "%0*d", 1+r.IntN(4), lo)
			if r.IntN(2) == 0 {
				fmt.Fprintf(&b, "-%0*d", 1+r.IntN(4), lo+r.IntN(6))
			}
		}
		b.WriteByte(']')
		if i < brackets-1 && r.IntN(2) == 0 {
			b.WriteString([]string{"c", "-", "_blade", "n0"}[r.IntN(4)])
		}
	}
	if suffix && r.IntN(3) == 0 {
		b.WriteString([]string{"-ib", ".cluster.local", "x"}[r.IntN(3)])
	}
	return b.String()
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"n[1-3],m", "n[0-1][0-1]x", "a[", "n[[1],2]", "[1-1000000000]", "10.1.4.[1-12]:8", "[fd00::1]:4", "a:b", "n[1-99999]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		names, err := Expand(s)
		if err == nil {
			for _, n := range names {
				if !validName(n) {
					t.Fatalf("Expand(%q) made the name %q", s, n)
				}
			}
			if len(names) <= 10000 {
				back, err := Expand(Compress(names))
				if err != nil || !cmp.Equal(names, back) {
					t.Fatalf("Compress of Expand(%q) = %q does not come back: %v", s, Compress(names), err)
				}
			}
		}
		a, err := ParseList(s)
		if err == nil {
			if _, err := Format(a, OpenMPI); err != nil {
				t.Fatalf("ParseList(%q) made hosts that cannot be written: %v", s, err)
			}
		}
	})
}

func FuzzParseRunLengths(f *testing.F) {
	for _, s := range []string{"2(x3),1", "4", "1(x0)", "1(x16", "", "99999999999(x99999999999)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseRunLengths(s)
		if err == nil && (len(got) == 0 || len(got) > maxNames) {
			t.Fatalf("ParseRunLengths(%q) has %d counts", s, len(got))
		}
	})
}

// BenchmarkExpand is the promise of 100,000 names within 10 ms.
func BenchmarkExpand(b *testing.B) {
	for b.Loop() {
		if names, err := Expand("node[000001-100000]"); err != nil || len(names) != 100000 {
			b.Fatal(len(names), err)
		}
	}
}

func BenchmarkParseList(b *testing.B) {
	for b.Loop() {
		if a, err := ParseList("node[000001-050000],gpu[000001-050000]:8"); err != nil || len(a.Hosts) != 100000 {
			b.Fatal(len(a.Hosts), err)
		}
	}
}

func BenchmarkCompress(b *testing.B) {
	names, err := Expand("node[000001-100000]")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if Compress(names) != "node[000001-100000]" {
			b.Fatal("wrong")
		}
	}
}
