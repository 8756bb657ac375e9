package eyes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher"
	"fabrun/launcher/watch"
)

func netLine(host, net string) string { return host + ":1:1 [0] NCCL INFO Using network " + net + "\n" }

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestUserLogs: of the files that match what the user set, what this job writes
// is read, what was there before is not, and none is changed.
func TestUserLogs(t *testing.T) {
	for _, c := range []struct {
		name   string
		before map[string]string
		during map[string]string
		want   []string // networks
	}{
		{"new file", nil, map[string]string{"nccl.n1.7.log": netLine("n1", "IB")}, []string{"IB"}},
		{"left over", map[string]string{"nccl.old.1.log": netLine("old", "Socket")}, map[string]string{"nccl.n1.7.log": netLine("n1", "IB")}, []string{"IB"}},
		{
			"written anew, and longer",
			map[string]string{"nccl.n1.7.log": netLine("n1", "Socket")},
			map[string]string{"nccl.n1.7.log": "n1:2:2 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n" + netLine("n1", "IB")},
			[]string{"IB"},
		},
		{
			"written anew, and shorter",
			map[string]string{"nccl.n1.7.log": netLine("n1", "Socket") + netLine("n1", "Socket")},
			map[string]string{"nccl.n1.7.log": netLine("n2", "IB")},
			[]string{"IB"},
		},
		{
			"continued",
			map[string]string{"nccl.n1.7.log": netLine("n1", "Socket")},
			map[string]string{"nccl.n1.7.log": netLine("n1", "Socket") + netLine("n1", "IB")},
			[]string{"IB"},
		},
		{"another name", nil, map[string]string{"other.log": netLine("n1", "IB")}, []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.before {
				write(t, filepath.Join(dir, name), text)
			}
			what := Following{Patterns: []string{filepath.Join(dir, "nccl.%h.%p.log")}}
			what.Census()
			w := watch.New(watch.Options{})
			f := NewFollower(w, what)
			f.Poll()
			for name, text := range c.during {
				write(t, filepath.Join(dir, name), text)
			}
			f.Poll()
			f.Close()
			if got := w.Verdict().Networks; !cmp.Equal(got, c.want) {
				t.Errorf("networks %v, want %v", got, c.want)
			}
			for name, text := range c.during {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
					t.Errorf("%s was changed: %v", name, err)
				}
			}
		})
	}
}

// TestUserLogsOfOthers: a file that somebody else put under the user's pattern is
// not read.
func TestUserLogsOfOthers(t *testing.T) {
	dir := t.TempDir()
	w := watch.New(watch.Options{})
	f := NewFollower(w, Following{Patterns: []string{filepath.Join(dir, "nccl.%p.log")}})
	name := filepath.Join(dir, "nccl.9.log")
	write(t, name, netLine("n1", "Socket"))
	if err := os.Chown(name, 65534, 65534); err != nil {
		t.Skipf("needs root: %v", err)
	}
	f.Close()
	if got := w.Verdict().Networks; len(got) != 0 {
		t.Errorf("networks %v from a file of another user", got)
	}
}

func TestLogPlaces(t *testing.T) {
	for _, c := range []struct {
		name     string
		set      string
		patterns []string
		out, err bool
	}{
		{"nothing set", "", nil, false, false},
		{"debug to standard output", "NCCL_DEBUG=INFO", nil, true, false},
		{"debug off", "NCCL_DEBUG=VERSION NCCL_DEBUG_FILE=/tmp/x", nil, false, false},
		{"a file of the user's", "NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/scratch/nccl.%h.%p", []string{"/scratch/nccl.%h.%p"}, false, false},
		{"relative to where the ranks start", "NCCL_DEBUG=INFO NCCL_DEBUG_FILE=logs/../nccl.%p", []string{"/home/u/job/nccl.%p"}, false, false},
		{"fabrun's own", "NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/dev/shm/run/nccl.%h.%p", nil, false, false},
		{"nowhere", "NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/dev/null", nil, false, false},
		{"standard error", "NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/dev/stderr", nil, false, true},
		{"ucx", "UCX_LOG_LEVEL=info UCX_LOG_FILE=file:/scratch/ucx.%h.%p", []string{"/scratch/ucx.%h.%p"}, false, false},
		{"one file for both", "NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/scratch/log UCX_LOG_LEVEL=info UCX_LOG_FILE=/scratch/log", []string{"/scratch/log"}, false, false},
		{"ucx to standard error", "UCX_LOG_LEVEL=info UCX_LOG_FILE=stderr", nil, false, true},
		{"intel mpi", "I_MPI_DEBUG=4", nil, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := map[string]string{}
			for _, kv := range strings.Fields(c.set) {
				name, v, _ := strings.Cut(kv, "=")
				set[name] = v
			}
			f, out, err := LogPlaces(set, "/dev/shm/run", "/home/u/job")
			if !cmp.Equal(f.Patterns, c.patterns) || out != c.out || err != c.err || f.Dir != "/dev/shm/run" {
				t.Errorf("patterns %v stdout %v stderr %v, want %v %v %v", f.Patterns, out, err, c.patterns, c.out, c.err)
			}
		})
	}
}

func TestForHost(t *testing.T) {
	for _, c := range []struct{ pattern, host, want string }{
		{"/s/nccl.%h.%p", "n1.cluster", "/s/nccl.n1.%p"},
		{"/s/nccl.%p", "n1", "/s/nccl.%p"},
		{"/s/%h/%h", "a%b", "/s/a%%b/a%%b"},
	} {
		if got := ForHost(c.pattern, c.host); got != c.want {
			t.Errorf("%s on %s: %s, want %s", c.pattern, c.host, got, c.want)
		}
	}
	if shared, known := launcher.SharedLogs("/proc/self/nccl.%p"); shared || !known {
		t.Errorf("/proc: shared %v known %v", shared, known)
	}
	if _, known := launcher.SharedLogs("/no/such/directory/nccl.%p"); known {
		t.Error("a directory that is not there is known")
	}
	if shared, known := launcher.SharedLogs("/proc/%h/%p/log"); shared || !known {
		t.Errorf("names in the directory: shared %v known %v", shared, known)
	}
}

func FuzzGlobOf(f *testing.F) {
	f.Add("/s/nccl.%h.%p", "n1")
	f.Add("[*?\\", "%")
	f.Fuzz(func(t *testing.T, pattern, host string) {
		if _, err := filepath.Match(globOf(pattern), "x"); err != nil {
			t.Errorf("%q becomes %q: %v", pattern, globOf(pattern), err)
		}
		_ = ForHost(pattern, host)
	})
}
