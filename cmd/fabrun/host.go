package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"fabrun/launcher/exit"
	"fabrun/testdata/hosts"
	"fabrun/topology"
	"fabrun/topology/discover"
	"fabrun/topology/finding"
	"fabrun/topology/live"
)

// hostFS returns the file tree that --from or --root names, else this
// machine's with what ask wants to know of it, and a function that lets go of it.
func (a *app) hostFS(ctx context.Context, ask live.Options) (fs.FS, string, func(), error) {
	nothing := func() {}
	switch {
	case a.from != "" && a.root != "":
		return nil, "", nothing, exit.UsageError(fmt.Errorf("--from and --root are two machines: give one"), "")
	case a.from != "":
		text, err := a.readFrom()
		if err != nil {
			return nil, "", nothing, err
		}
		if discover.IsXML(text) {
			return nil, "", nothing, fmt.Errorf("%q is an NCCL topology XML: this wants a snapshot", a.from)
		}
		if !discover.IsSnapshot(text) {
			return nil, "", nothing, exit.WithHint(fmt.Errorf("%q is no fabrun snapshot", a.from), "'fabrun snapshot > FILE' on the machine writes one")
		}
		snap, err := discover.ParseSnapshot(text)
		if err != nil {
			return nil, "", nothing, fmt.Errorf("read %q: %w", a.from, err)
		}
		return snap, "snapshot", nothing, nil
	case a.root != "":
		root, err := os.OpenRoot(a.root)
		if err != nil {
			return nil, "", nothing, exit.WithHint(fmt.Errorf("--root: %w", err), "it wants a directory that has sys and proc")
		}
		return ask.Attempt.FS(root.FS()), "root", func() { _ = root.Close() }, nil
	}
	ask.Env = a.env
	return live.FS(ctx, ask), "live", nothing, nil
}

// maxFrom bounds what --from reads: far more than a large host's snapshot.
const maxFrom = 64 << 20

// readFrom returns the text of --from: a file, "-" for standard input, or the
// embedded machine. It is read once: standard input gives it once only.
func (a *app) readFrom() (string, error) {
	if a.fromText != "" {
		return a.fromText, nil
	}
	text, err := a.readFromOnce()
	a.fromText = text
	return text, err
}

func (a *app) readFromOnce() (string, error) {
	if a.from == "-" {
		return readAllBounded(a.stdin, maxFrom)
	}
	f, err := os.Open(a.from)
	if err != nil {
		if os.IsNotExist(err) && a.from == hosts.DemoName {
			return hosts.Demo, nil
		}
		return "", exit.WithHint(fmt.Errorf("--from: %w", err), fmt.Sprintf("it wants a snapshot, an NCCL topology XML, - for standard input, or %s for the embedded machine", hosts.DemoName))
	}
	defer f.Close()
	text, err := readAllBounded(f, maxFrom)
	if err != nil {
		return "", fmt.Errorf("read %q: %w", a.from, err)
	}
	return text, nil
}

// loadHost is the one way of every verb to the host it works on: --from (a
// snapshot or an NCCL topology XML), --root, else this machine.
func (a *app) loadHost(ctx context.Context) (topology.Host, error) {
	h, _, err := a.lookAtHost(ctx, live.Options{})
	return h, err
}

// lookAtHost is loadHost with more to ask of a live machine, and with what a
// topology XML has wrong, or where a second opinion differs from the tree.
func (a *app) lookAtHost(ctx context.Context, opts live.Options) (topology.Host, []finding.Finding, error) {
	if a.from != "" && a.root == "" {
		text, err := a.readFrom()
		if err != nil {
			return topology.Host{}, nil, err
		}
		if discover.IsXML(text) {
			h, found, err := discover.ReadXML(strings.NewReader(text))
			if err != nil {
				return h, nil, fmt.Errorf("read %q: %w", a.from, err)
			}
			return h, found, nil
		}
	}
	h, err := lookPatiently(ctx, a, opts, func(fsys fs.FS, source string) (topology.Host, error) {
		h, err := discover.Read(fsys)
		h.Source = source
		return h, err
	})
	if err != nil {
		return h, nil, err
	}
	return h, live.Disagreements(&h), nil
}

// lookPatiently reads the host that --from or --root names, else this machine. A
// file that does not answer is named and left out.
func lookPatiently[T any](ctx context.Context, a *app, ask live.Options, read func(fsys fs.FS, source string) (T, error)) (T, error) {
	if a.from != "" && a.root == "" {
		// Who writes it may take their time.
		if _, err := a.readFrom(); err != nil {
			var zero T
			return zero, err
		}
	}
	v, blocked, err := live.Patiently(ctx, a.patience, func(attempt *live.Attempt) (T, error) {
		ask := ask // of this attempt: one that was left behind has its own
		ask.Attempt = attempt
		fsys, source, done, err := a.hostFS(ctx, ask)
		if err != nil {
			var zero T
			return zero, err
		}
		defer done()
		v, err := read(fsys, source)
		if err != nil {
			return v, fmt.Errorf("look at %s: %w", a.hostName(), err)
		}
		return v, nil
	})
	var stalled *live.StalledError
	var told exit.SignalCause
	switch {
	case errors.As(err, &told):
		return v, &exit.Error{Code: exit.SignalsBase + int(told), Err: fmt.Errorf("%w while looking at %s", told, a.hostName())}
	case errors.As(err, &stalled):
		return v, exit.WithHint(fmt.Errorf("look at %s: %w", a.hostName(), err), "a driver or a file system hangs: 'dmesg' may say which; 'cat' of the file would hang too")
	case len(blocked) > 0 && err == nil:
		fmt.Fprintf(a.own(), "%s: no answer from %s: left out, and unknown\n", a.hostName(), strings.Join(blocked, ", "))
	}
	return v, err
}

// hostName is how messages call the host that is looked at.
func (a *app) hostName() string {
	switch {
	case a.from != "":
		return fmt.Sprintf("%q", a.from)
	case a.root != "":
		return fmt.Sprintf("%q", a.root)
	}
	return "this machine"
}

// nvmlHelper is the fabrun-nvml beside this program, "" where there is none.
func (a *app) nvmlHelper() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return live.Helper(self)
}
