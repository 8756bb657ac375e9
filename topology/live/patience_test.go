package live

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"fabrun/topology"
)

// hangs is a tree of which some files never answer.
type hangs struct {
	fstest.MapFS
	never func(name string) bool
	end   chan struct{}
}

func (h hangs) ReadFile(name string) ([]byte, error) {
	if h.never(name) {
		<-h.end // in the kernel, where nothing reaches
	}
	return h.MapFS.ReadFile(name)
}

// readAll reads three files in order and says how each ended.
func readAll(root fs.FS) func(*Attempt) (string, error) {
	return func(a *Attempt) (string, error) {
		tree := a.FS(root)
		var out []string
		for _, name := range []string{"sys/class/a/x/1", "sys/class/a/x/2", "sys/class/b/x/1"} {
			_, err := fs.ReadFile(tree, name)
			switch {
			case errors.Is(err, syscall.ETIMEDOUT):
				out = append(out, "unknown")
			case err != nil:
				return "", err
			default:
				out = append(out, "read")
			}
		}
		return strings.Join(out, " "), nil
	}
}

func TestPatiently(t *testing.T) {
	tree := fstest.MapFS{"sys/class/a/x/1": {}, "sys/class/a/x/2": {}, "sys/class/b/x/1": {}}
	p := Patience{Stall: 2 * time.Second, Total: 10 * time.Second}
	for _, tc := range []struct {
		name    string
		never   func(string) bool
		want    string
		blocked []string
		took    time.Duration // at most
	}{
		{"all answer", func(string) bool { return false }, "read read read", nil, 0},
		{"one file hangs", func(n string) bool { return n == "sys/class/a/x/1" }, "unknown read read", []string{"sys/class/a/x/1"}, 3 * time.Second},
		{"a whole device hangs", func(n string) bool { return strings.HasPrefix(n, "sys/class/a/") }, "unknown unknown read", []string{"sys/class/a/x/1", "sys/class/a/x"}, 6 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := make(chan struct{})
				defer close(end)
				began := time.Now()
				got, blocked, err := Patiently(t.Context(), p, readAll(hangs{tree, tc.never, end}))
				if err != nil || got != tc.want || !slices.Equal(blocked, tc.blocked) {
					t.Errorf("%q %q %v, want %q %q", got, blocked, err, tc.want, tc.blocked)
				}
				if took := time.Since(began); took > tc.took {
					t.Errorf("it took %v, want at most %v", took, tc.took)
				}
			})
		})
	}
}

func TestPatientlyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		look := func(a *Attempt) (int, error) {
			// Sections hang without a file.
			f, err := a.begin("open", fmt.Sprintf("fabrun/%d", time.Now().UnixNano()), aSection)
			if err != nil {
				return 0, err
			}
			defer a.end(f)
			<-end
			return 0, nil
		}
		_, _, err := Patiently(t.Context(), Patience{}, look)
		var stalled *StalledError
		if !errors.As(err, &stalled) || len(stalled.Files) == 0 {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("Ctrl-C")
		time.AfterFunc(time.Second, func() { cancel(why) })
		if _, _, err := Patiently(ctx, Patience{}, look); !errors.Is(err, why) {
			t.Errorf("told to end: %v", err)
		}
		close(end)
	})
}

// A slow machine is not a hanging one: what answers, however late, is waited for.
func TestPatientlyWaitsForTheSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := func(a *Attempt) (int, error) {
			outer, err := a.begin("open", "fabrun/software", aSection)
			if err != nil {
				return 0, err
			}
			defer a.end(outer)
			for i := range 6 {
				f, err := a.begin("read", fmt.Sprint("lib/", i), aFile)
				if err != nil {
					return 0, err
				}
				time.Sleep(1500 * time.Millisecond)
				a.end(f)
			}
			return 6, nil
		}
		n, blocked, err := Patiently(t.Context(), Patience{}, look)
		if n != 6 || blocked != nil || err != nil {
			t.Errorf("%d %q %v", n, blocked, err)
		}
	})
}

// A program that was started ends at its own deadline: a busy machine takes long
// to start one. Beside it nothing is blamed, after it everything again.
func TestPatientlyWaitsForPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		look := func(a *Attempt) (string, error) {
			f, err := a.begin("open", "fabrun/launchers", aProgram)
			if err != nil {
				return "", err
			}
			time.Sleep(15 * time.Second) // several programs, one after the other
			a.end(f)
			f, err = a.begin("read", "sys/x/y/z", aFile)
			if err != nil {
				return "without the file", nil
			}
			defer a.end(f)
			<-end
			return "", nil
		}
		got, blocked, err := Patiently(t.Context(), Patience{Total: time.Minute}, look)
		if got != "without the file" || !slices.Equal(blocked, []string{"sys/x/y/z"}) || err != nil {
			t.Errorf("%q %q %v", got, blocked, err)
		}
	})
}

func TestSectionsThatStartPrograms(t *testing.T) {
	end, asked := make(chan struct{}), make(chan struct{})
	a := &Attempt{}
	tree := newOverlay(t.Context(), fstest.MapFS{}, "", Options{Attempt: a, Launchers: func() []topology.Launcher {
		close(asked)
		<-end
		return nil
	}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		//nolint:errcheck // there is none
		_, _ = fs.ReadFile(tree, "fabrun/launchers")
	}()
	<-asked
	if !a.waitsForProgram() || a.stuck(0, 0) != nil {
		t.Error("a launcher that is asked counts as a file that hangs")
	}
	close(end)
	<-done
	if a.waitsForProgram() {
		t.Error("it has answered")
	}
}
