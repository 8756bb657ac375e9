package watch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

// glues are what exports, quotations and other processes put behind a value without
// a space.
var glues = []string{
	"", "\"", "'", ")", "]", "}", "|", "`", "<br>", "<br/>", "</td>", "&quot;", `\n`, `\r\n`, `\"`, `\\n\"}`, `\n","stream":"stdout"}`, "\",", "\"}", "'}", "']",
	"\t|", " |", " \u2502", "\u2502", "\r", "\",\"2026-11-21T04:55:11Z\"",
	"n1:10:11 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>", // of a process that spoke before
	`\nn9:90:91 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.9<0>`,
	"<br>n9:90:91 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.9<0>",
}

// TestValuesEndWhereNCCLEndsThem: whatever is glued behind an echo, the value is what
// the user has set.
func TestValuesEndWhereNCCLEndsThem(t *testing.T) {
	speaker := "n1:10:10 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"
	tried := 0
	for _, v := range []struct {
		name, said string
		values     []string
		more       []string // glues that end this kind of value only
	}{
		// Numbers have the full stop.
		{"NCCL_IB_DISABLE", "NCCL_IB_DISABLE set by environment to %s.", []string{"0", "1", "16", "-2"}, []string{
			"n2:20:21 [1] NCCL INFO Using network IB", "2026-11-21T04:55:11Z n2:20:21 [1] NCCL INFO Using network IB", ".", ",", ";", ":", "x",
			"10-0-0-5:20:21 [1] NCCL INFO Using network IB",
		}},
		{"NCCL_IB_GID_INDEX", "NCCL_IB_GID_INDEX set by environment to %s.", []string{"0", "3"}, []string{"n2:20:21 [1] NCCL INFO Using network IB"}},
		{"NCCL_NET", "NCCL_NET set by environment to %s.", []string{"IB", "Socket", "AWS Libfabric"}, []string{","}},
		{"NCCL_NET", "Comm config netName reset to NCCL_NET=%s", []string{"IB", "Socket"}, []string{",", "."}},
		{"NCCL_NET", "NCCL_NET set by environment to %s", []string{"IB", "Socket"}, []string{",", "."}},
		{"NCCL_IB_HCA", "NCCL_IB_HCA set to %s", []string{"mlx5_0", "=mlx5_0:1,mlx5_1:1", "^mlx5_2", "mlx5"}, nil},
		{"NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME set by environment to %s", []string{"eth0", "eno5np0,eno6np0", "=bond0.526", "^docker,lo"}, nil},
		{"NCCL_COMM_ID", "NCCL_COMM_ID set by environment to %s", []string{"10.0.0.1:4711"}, nil},
	} {
		for _, value := range v.values {
			for _, glue := range append(append([]string(nil), glues...), v.more...) {
				tried++
				log := speaker + "n1:10:10 [0] NCCL INFO " + fmt.Sprintf(v.said, value) + glue + "\n"
				w := New(Options{})
				if _, err := w.Source("").ReadFrom(strings.NewReader(log)); err != nil {
					t.Fatal(err)
				}
				if got := w.runs.latest().env[v.name]; got != value {
					t.Errorf("%s is %q, want %q, in %q", v.name, got, value, log[len(speaker):])
				}
			}
		}
	}
	t.Logf("%d values", tried)
}

// TestIsOnAsStrtoll: a number that is not zero, and nothing else.
func TestIsOnAsStrtoll(t *testing.T) {
	for v, want := range map[string]bool{"": false, "0": false, "00": false, "0x0": false, "false": false, "true": false, "yes": false, "1": true, "2": true, "-1": true, "0x1": true, "01": true, "1\"": true} {
		if isOn(v) != want {
			t.Errorf("%q", v)
		}
	}
}

// socketLog is a job of two nodes whose ranks see no RDMA device, with an echo that
// exports turn into something else.
const socketLog = `n1:10:10 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.
n1:10:11 [0] NCCL INFO NET/IB : No device found.
n1:10:11 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
n1:10:11 [0] NCCL INFO Using network Socket
n2:20:20 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.
n2:20:20 [0] NCCL INFO Using network Socket
n1:10:11 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0
n2:20:20 [0] NCCL INFO comm 0x2 rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0
n1:10:11 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
n2:20:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0
`

// TestExports: what log services make of a log changes nothing.
func TestExports(t *testing.T) {
	quote := func(s string) string {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, export := range map[string]func(lines []string) string{
		"docker": func(l []string) string {
			return each(l, func(s string) string {
				return `{"log":` + quote(s+"\n") + `,"stream":"stdout","time":"2026-11-21T04:55:11Z"}`
			})
		},
		"docker with colours": func(l []string) string {
			return each(l, func(s string) string {
				return `{"log":` + quote("\x1b[36mw-0 |\x1b[0m "+s+"\n") + `,"stream":"stdout"}`
			})
		},
		"JSON in JSON": func(l []string) string {
			return each(l, func(s string) string {
				return `{"line":` + quote(`{"log":`+quote(s+"\n")+`,"stream":"stderr"}`) + `,"labels":{"pod":"w-0"}}`
			})
		},
		"Loki": func(l []string) string {
			values := []string{}
			for _, s := range l {
				values = append(values, `["1763700911000000000",`+quote(s)+`]`)
			}
			return `{"streams":[{"stream":{"pod":"w-0"},"values":[` + strings.Join(values, ",") + `]}]}` + "\n"
		},
		"one JSON string": func(l []string) string { return `{"stdout":` + quote(strings.Join(l, "\n")+"\n") + `}` + "\n" },
		"CSV": func(l []string) string {
			return each(l, func(s string) string { return `2026-11-21,"` + s + `",w-0,stdout` })
		},
		"CSV in the end": func(l []string) string { return each(l, func(s string) string { return `2026-11-21,w-0,"` + s + `"` }) },
		"logfmt": func(l []string) string {
			return each(l, func(s string) string { return `ts=1.5 msg="` + s + `" level=info pod=w-0` })
		},
		"a list": func(l []string) string { return each(l, func(s string) string { return `['` + s + `'],` }) },
		"HTML":   func(l []string) string { return strings.Join(l, "<br>") + "\n" },
		"HTML by line": func(l []string) string {
			return each(l, func(s string) string { return "<tr><td>" + s + "</td></tr>" })
		},
		"table": func(l []string) string { return each(l, func(s string) string { return "| " + s + "|" }) },
	} {
		for _, log := range []string{socketLog, twoNodeLog} {
			lines := strings.Split(strings.TrimSpace(log), "\n")
			if d := cmp.Diff(digest(mustScan(t, log)), digest(mustScan(t, export(lines)))); d != "" {
				t.Errorf("%s (-plain +exported):\n%s\n%s", name, d, export(lines))
			}
		}
	}
}

func each(lines []string, f func(string) string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(f(l) + "\n")
	}
	return b.String()
}

// asUTF16 is text in UTF-16.
func asUTF16(text string, big, marked bool) []byte {
	var b []byte
	if marked {
		text = "\ufeff" + text
	}
	for _, c := range utf16.Encode([]rune(text)) {
		if big {
			b = append(b, byte(c>>8), byte(c))
		} else {
			b = append(b, byte(c), byte(c>>8))
		}
	}
	return b
}

// TestUTF16: files of PowerShell, with and without a mark, in pieces of any size.
func TestUTF16(t *testing.T) {
	log := strings.Replace(twoNodeLog, "\n", "\r\n", -1) + "Fortschritt \U0001f600 ────\r\n"
	want := digest(mustScan(t, log))
	for name, text := range map[string][]byte{
		"UTF-8 with a mark":    []byte("\ufeff" + log),
		"little endian":        asUTF16(log, false, true),
		"big endian":           asUTF16(log, true, true),
		"little endian, plain": asUTF16(log, false, false),
		"big endian, plain":    asUTF16(log, true, false),
	} {
		whole := New(Options{})
		if _, err := whole.Source("").ReadFrom(bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		pieces := New(Options{})
		if _, err := pieces.Source("").ReadFrom(iotest.OneByteReader(bytes.NewReader(text))); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, digest(whole.Verdict())); d != "" {
			t.Errorf("%s (-plain +encoded):\n%s", name, d)
		}
		if d := cmp.Diff(want, digest(pieces.Verdict())); d != "" {
			t.Errorf("%s byte by byte (-plain +encoded):\n%s", name, d)
		}
	}
	// Bytes that are no UTF-16 stay as they are.
	for _, text := range []string{"", "a", "\x00", "ab", "a\x00\x01b" + log, "\x00" + log, "\xff" + log} {
		w := New(Options{})
		n, err := w.Source("").ReadFrom(strings.NewReader(text))
		if err != nil || n != int64(len(text)) {
			t.Errorf("%.10q: %d bytes, %v", text, n, err)
		}
		if strings.HasSuffix(text, log) && !strings.Contains(digest(w.Verdict()), "fb=false") {
			t.Errorf("%.10q: %s", text, digest(w.Verdict()))
		}
	}
}

func FuzzSettingValue(f *testing.F) {
	for _, glue := range glues {
		f.Add("NCCL_IB_DISABLE", "0."+glue)
		f.Add("NCCL_NET", "AWS Libfabric"+glue)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		v := settingValue(name, text)
		if !strings.Contains(text, v) || strings.ContainsAny(v, "\t\"|<") {
			t.Errorf("%q of %q", v, text)
		}
	})
}

// FuzzEncoding: text comes out whole, in whatever pieces it is read, and UTF-16 as
// what it stands for.
func FuzzEncoding(f *testing.F) {
	f.Add("n1:10:10 [0] NCCL INFO", false)
	f.Add("\U0001f600", true)
	f.Fuzz(func(t *testing.T, text string, big bool) {
		read := func(b []byte) string {
			out, err := io.ReadAll(&utf8Reader{r: iotest.OneByteReader(bytes.NewReader(b))})
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
		valid := strings.ToValidUTF8(text, "?")
		if got := read(asUTF16(valid, big, true)); got != valid {
			t.Errorf("%q came out as %q", valid, got)
		}
		if len(text) > 1 && text[0] > 0 && text[0] < 0x80 && text[1] > 0 {
			if got := read([]byte(text)); got != text {
				t.Errorf("%q came out as %q", text, got)
			}
		}
	})
}
