package look

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/report"
	"fabrun/testdata/hosts"
	"fabrun/topology"
	"fabrun/topology/discover"
	"fabrun/topology/finding"
	"fabrun/topology/live"
)

// Machines are those that a call of fabrun looks at: this one, or a snapshot or
// another root directory in its place, and others over a transport.
type Machines struct {
	Env    []string
	Stdin  io.Reader // where From is "-"
	Stderr io.Writer // for fabrun's own lines
	From   string    // a snapshot or an NCCL topology XML; "" none
	Root   string    // another root directory; "" none

	Verbose  bool
	Progress *report.Progress   // nil: how far the work is is not shown
	Patience live.Patience      // with files that do not answer
	Stalled  *live.StalledError // why this machine could not be looked at; nil it could

	text string // of From, once it was read
}

// Getenv returns the last value of a name in the environment, and whether it is there.
func (a *Machines) Getenv(name string) (string, bool) { return cmdline.Lookup(a.Env, name) }

// Own is where fabrun's own lines go.
func (a *Machines) Own() io.Writer { return report.Own(a.Stderr, a.Env) }

// Self is the path under which this program can be started again; "" unknown.
func (a *Machines) Self() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// FS returns the file tree that --from or --root names, else this
// machine's with what ask wants to know of it, and a function that lets go of it.
func (a *Machines) FS(ctx context.Context, ask live.Options) (fs.FS, string, func(), error) {
	nothing := func() {}
	switch {
	case a.From != "" && a.Root != "":
		return nil, "", nothing, exit.UsageError(fmt.Errorf("--from and --root are two machines: give one"), "")
	case a.From != "":
		text, err := a.Text()
		if err != nil {
			return nil, "", nothing, err
		}
		if discover.IsXML(text) {
			return nil, "", nothing, fmt.Errorf("%q is an NCCL topology XML: this wants a snapshot", a.From)
		}
		if !discover.IsSnapshot(text) {
			return nil, "", nothing, exit.WithHint(fmt.Errorf("%q is no fabrun snapshot", a.From), "'fabrun snapshot > FILE' on the machine writes one")
		}
		snap, err := discover.ParseSnapshot(text)
		if err != nil {
			return nil, "", nothing, fmt.Errorf("read %q: %w", a.From, err)
		}
		return snap, "snapshot", nothing, nil
	case a.Root != "":
		root, err := os.OpenRoot(a.Root)
		if err != nil {
			return nil, "", nothing, exit.WithHint(fmt.Errorf("--root: %w", err), "it wants a directory that has sys and proc")
		}
		return ask.Attempt.FS(root.FS()), "root", func() { _ = root.Close() }, nil
	}
	ask.Env = a.Env
	return live.FS(ctx, ask), "live", nothing, nil
}

// maxFrom bounds what --from reads: far more than a large host's snapshot.
const maxFrom = 64 << 20

// Text returns the text of --from: a file, "-" for standard input, or the
// embedded machine. It is read once: standard input gives it once only.
func (a *Machines) Text() (string, error) {
	if a.text != "" {
		return a.text, nil
	}
	text, err := a.readText()
	a.text = text
	return text, err
}

func (a *Machines) readText() (string, error) {
	if a.From == "-" {
		return files.ReadAll(a.Stdin, maxFrom)
	}
	f, err := os.Open(a.From)
	if err != nil {
		if os.IsNotExist(err) && a.From == hosts.DemoName {
			return hosts.Demo, nil
		}
		return "", exit.WithHint(fmt.Errorf("--from: %w", err), fmt.Sprintf("it wants a snapshot, an NCCL topology XML, - for standard input, or %s for the embedded machine", hosts.DemoName))
	}
	defer f.Close()
	text, err := files.ReadAll(f, maxFrom)
	if err != nil {
		return "", fmt.Errorf("read %q: %w", a.From, err)
	}
	return text, nil
}

// Host is the one way of every verb to the host it works on: --from (a
// snapshot or an NCCL topology XML), --root, else this machine.
func (a *Machines) Host(ctx context.Context) (topology.Host, error) {
	h, _, err := a.Look(ctx, live.Options{})
	return h, err
}

// Look is Host with more to ask of a live machine, and with what a
// topology XML has wrong, or where a second opinion differs from the tree.
func (a *Machines) Look(ctx context.Context, opts live.Options) (topology.Host, []finding.Finding, error) {
	if a.From != "" && a.Root == "" {
		text, err := a.Text()
		if err != nil {
			return topology.Host{}, nil, err
		}
		if discover.IsXML(text) {
			h, found, err := discover.ReadXML(strings.NewReader(text))
			if err != nil {
				return h, nil, fmt.Errorf("read %q: %w", a.From, err)
			}
			return h, found, nil
		}
	}
	h, err := Patiently(ctx, a, opts, func(fsys fs.FS, source string) (topology.Host, error) {
		h, err := discover.Read(fsys)
		h.Source = source
		return h, err
	})
	if err != nil {
		return h, nil, err
	}
	return h, live.Disagreements(&h), nil
}

// Patiently reads the host that --from or --root names, else this machine. A
// file that does not answer is named and left out.
func Patiently[T any](ctx context.Context, a *Machines, ask live.Options, read func(fsys fs.FS, source string) (T, error)) (T, error) {
	if a.From != "" && a.Root == "" {
		// Who writes it may take their time.
		if _, err := a.Text(); err != nil {
			var zero T
			return zero, err
		}
	}
	v, blocked, err := live.Patiently(ctx, a.Patience, func(attempt *live.Attempt) (T, error) {
		ask := ask // of this attempt: one that was left behind has its own
		ask.Attempt = attempt
		fsys, source, done, err := a.FS(ctx, ask)
		if err != nil {
			var zero T
			return zero, err
		}
		defer done()
		v, err := read(fsys, source)
		if err != nil {
			return v, fmt.Errorf("look at %s: %w", a.Called(), err)
		}
		return v, nil
	})
	var stalled *live.StalledError
	var told exit.SignalCause
	switch {
	case errors.As(err, &told):
		return v, &exit.Error{Code: exit.SignalsBase + int(told), Err: fmt.Errorf("%w while looking at %s", told, a.Called())}
	case errors.As(err, &stalled):
		return v, exit.WithHint(fmt.Errorf("look at %s: %w", a.Called(), err), "a driver or a file system hangs: 'dmesg' may say which; 'cat' of the file would hang too")
	case len(blocked) > 0 && err == nil:
		fmt.Fprintf(a.Own(), "%s: no answer from %s: left out, and unknown\n", a.Called(), strings.Join(blocked, ", "))
	}
	return v, err
}

// Called is how messages call the host that is looked at.
func (a *Machines) Called() string {
	switch {
	case a.From != "":
		return fmt.Sprintf("%q", a.From)
	case a.Root != "":
		return fmt.Sprintf("%q", a.Root)
	}
	return "this machine"
}

// Helper is the fabrun-nvml beside this program, "" where there is none.
func (a *Machines) Helper() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return live.Helper(self)
}
