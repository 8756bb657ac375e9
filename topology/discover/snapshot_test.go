package discover

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"fabrun/topology"
)

const smallSnapshot = `fabrun-snapshot 1
-- etc/hostname --
node1
-- proc/no-newline --
one
two
\ no newline at end
-- proc/odd --
\-- looks/like --
\a/b -> c
\a ! b
\\backslash
plain -> too many words -> here
sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:03.0/net/eth0
-- sys/devices/pci0000:00/0000:00:03.0/net/eth0/mtu --
1500
sys/devices/pci0000:00/0000:00:03.0/net/eth0/speed ! EINVAL
sys/locked ! EACCES
-- sys/nothing/ --
`

func mustSnapshot(t testing.TB, text string) *Snapshot {
	t.Helper()
	s, err := ReadSnapshot(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSnapshotIsAFileSystem(t *testing.T) {
	s := mustSnapshot(t, strings.NewReplacer("sys/devices/pci0000:00/0000:00:03.0/net/eth0/speed ! EINVAL\n", "", "sys/locked ! EACCES\n", "").Replace(smallSnapshot))
	if err := fstest.TestFS(s, "etc/hostname", "sys/class/net/eth0", "sys/nothing"); err != nil {
		t.Error(err)
	}
}

func TestSnapshotReads(t *testing.T) {
	s := mustSnapshot(t, smallSnapshot)
	for name, want := range map[string]string{
		"etc/hostname":             "node1\n",
		"proc/no-newline":          "one\ntwo",
		"proc/odd":                 "-- looks/like --\na/b -> c\na ! b\n\\backslash\nplain -> too many words -> here\n",
		"sys/class/net/eth0/mtu":   "1500\n",
		"sys/class/net/eth0/mtu/x": "!not a directory",
		"sys/class/net/eth0/speed": "!invalid argument",
		"sys/class/net/eth1/mtu":   "!file does not exist",
		"sys/locked":               "!permission denied",
		"sys/locked/below":         "!permission denied",
		"sys":                      "!is a directory",
		"../etc/hostname":          "!invalid argument",
	} {
		got, err := fs.ReadFile(s, name)
		if err != nil {
			var pe *fs.PathError
			if !errors.As(err, &pe) || "!"+pe.Err.Error() != want {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		} else if string(got) != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if target, err := fs.ReadLink(s, "sys/class/net/eth0"); err != nil || target != "../../devices/pci0000:00/0000:00:03.0/net/eth0" {
		t.Errorf("ReadLink = %q, %v", target, err)
	}
}

func TestSnapshotErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", `snapshot line 1: want "fabrun-snapshot 1", got ""`},
		{"another version", "fabrun-snapshot 2\n", `snapshot line 1: version "2": this fabrun reads version 1`},
		{"text before an entry", "fabrun-snapshot 1\nhello\n", `snapshot line 2: want '-- path --', 'path -> target' or 'path ! reason', got "hello"`},
		{"leading slash", "fabrun-snapshot 1\n-- /etc/passwd --\n", `snapshot line 2: not a path below the root: "/etc/passwd"`},
		{"climbs", "fabrun-snapshot 1\n-- a/../../b --\n", `snapshot line 2: not a path below the root: "a/../../b"`},
		{"twice", "fabrun-snapshot 1\n-- a --\n-- a --\n", `snapshot has "a" twice`},
		{"below a file", "fabrun-snapshot 1\n-- a --\n-- a/b --\n", `snapshot has "a/b" below "a", which is no directory`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ReadSnapshot(strings.NewReader(c.text))
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestSnapshotLinkLoops(t *testing.T) {
	s := mustSnapshot(t, "fabrun-snapshot 1\na -> b\nb -> a\nc -> c/d\n")
	for _, name := range []string{"a", "a/x", "c", "c/x"} {
		if _, err := fs.ReadFile(s, name); !errors.Is(err, syscall.ELOOP) {
			t.Errorf("%s: %v, want ELOOP", name, err)
		}
	}
}

// Any entries come back as they were written.
func TestSnapshotRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	for range 2000 {
		var in []entry
		for i := range rng.IntN(8) {
			name := string(rune('a'+i)) + pick("", "/b", "/b c", "/ü", "/\"q", "/x\n") + pick("", "-", "\\")
			switch rng.IntN(4) {
			case 0:
				in = append(in, entry{name, isLink, pick("../a", "/a b", "x\ny")})
			case 1:
				in = append(in, entry{name, isUnreadable, pick("EACCES", "no such thing")})
			case 2:
				in = append(in, entry{name, isDir, ""})
			default:
				var text string
				for range rng.IntN(5) {
					text += pick("", "\n", "\\", "\\ no newline at end", "-- a --\n", "a -> b\n", "a ! b\n", "\r\n", "\x00", "word", " ")
				}
				in = append(in, entry{name, isFile, text})
			}
		}
		var b bytes.Buffer
		if err := writeEntries(&b, in); err != nil {
			t.Fatal(err)
		}
		out, err := parseEntries(b.String())
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if d := cmp.Diff(in, out, cmp.AllowUnexported(entry{}), cmp.Transformer("nil", func(es []entry) []entry { return append([]entry{}, es...) })); d != "" {
			t.Fatalf("%s\n%s", d, b.String())
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	f.Add(smallSnapshot)
	for _, s := range snapshots(f) {
		f.Add(s.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadSnapshot(strings.NewReader(text))
		if err != nil {
			return
		}
		// What can be read can be written, and is then the same.
		var b bytes.Buffer
		if err := writeEntries(&b, s.entries); err != nil {
			t.Fatal(err)
		}
		again, err := ReadSnapshot(&b)
		if err != nil {
			t.Fatalf("%v\n%q", err, b.String())
		}
		if d := cmp.Diff(s.entries, again.entries, cmp.AllowUnexported(entry{})); d != "" {
			t.Fatal(d)
		}
		h, err := Read(s)
		if err == nil {
			topology.Paths(h)
		}
	})
}

type namedSnapshot struct{ name, text string }

// snapshots are the machines of testdata/hosts.
func snapshots(tb testing.TB) []namedSnapshot {
	tb.Helper()
	files, err := filepath.Glob("../../testdata/hosts/*.snap")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no snapshots: %v", err)
	}
	var out []namedSnapshot
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, namedSnapshot{strings.TrimSuffix(filepath.Base(file), ".snap"), string(text)})
	}
	return out
}

// A snapshot of a snapshot is the same bytes and the same Host: nothing is lost
// and nothing is made up.
func TestCaptureIsTheIdentityOnSnapshots(t *testing.T) {
	for _, c := range snapshots(t) {
		t.Run(c.name, func(t *testing.T) {
			s := mustSnapshot(t, c.text)
			var b bytes.Buffer
			if err := Capture(s, &b); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.text, b.String()); d != "" {
				t.Error(d)
			}
		})
	}
}

// The machine that runs the tests, whatever it is: its snapshot gives its Host.
func TestCaptureThisMachine(t *testing.T) {
	live := os.DirFS("/")
	want, err := Read(live)
	if err != nil {
		t.Skip(err)
	}
	var b bytes.Buffer
	if err := Capture(live, &b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(mustSnapshot(t, b.String()))
	if err != nil {
		t.Fatal(err)
	}
	// Free pages change while looking.
	got.Limits.HugePages, want.Limits.HugePages = nil, nil
	if d := cmp.Diff(want, got, hostCmp...); d != "" {
		t.Error(d)
	}
}

func TestCaptureLeavesSecretsOut(t *testing.T) {
	s := mustSnapshot(t, `fabrun-snapshot 1
-- fabrun/config/nccl/etc/nccl.conf --
NCCL_IB_TC=106
NCCL_AUTH_TOKEN=hunter2
-- fabrun/env --
UCX_API_KEY=hunter2
UCX_TLS=rc
-- proc/sys/kernel/hostname --
n1
-- proc/cmdline --
secret=hunter2
`)
	var b bytes.Buffer
	if err := Capture(s, &b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "hunter2") || !strings.Contains(b.String(), "UCX_TLS=rc") || !strings.Contains(b.String(), "NCCL_IB_TC=106") {
		t.Error(b.String())
	}
}

func BenchmarkSnapshotToHost(b *testing.B) {
	text, err := os.ReadFile("../../testdata/hosts/dgx-roce-8x8.snap")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := ReadSnapshot(bytes.NewReader(text))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Read(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLive(b *testing.B) {
	for b.Loop() {
		if _, err := Read(os.DirFS("/")); err != nil {
			b.Skip(err)
		}
	}
}

func TestFollow(t *testing.T) {
	for _, c := range []struct{ name, target, want string }{
		{"sys/class/net/eth0", "../../devices/pci0000:00/net/eth0", "sys/devices/pci0000:00/net/eth0"},
		{"sys/class/net/eth0", "eth1", "sys/class/net/eth1"},
		{"sys/class/net/eth0", "../../../etc", "etc"},
		{"sys/class/net/eth0", "../../../../../etc", "etc"},
		{"sys/class/net/eth0", "../..", "sys"},
		{"sys/class/net/eth0", "../../devices/../x", "sys/x"},
		{"sys/class/net/eth0", "../../devices//x/", "sys/devices/x"},
		{"sys/class/net/eth0", ".", "sys/class/net"},
		{"sys/class/net/eth0", "../.", "sys/class"},
		{"sys/class/net/eth0", "../../../..", "."},
		{"sys/class/net/eth0", "/proc/net", "proc/net"},
		{"eth0", "x/y", "x/y"},
		{"eth0", "../x", "x"},
	} {
		if got := follow(c.name, c.target); got != c.want {
			t.Errorf("follow(%q, %q) = %q, want %q", c.name, c.target, got, c.want)
		}
	}
}
