package job

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/plan"
)

// Stay runs the job of one node to its end, as standard input says, and hands on
// the signals that come there. When that ends, so does the job.
func (a *Call) Stay() error {
	in := bufio.NewReader(a.Stdin)
	job, err := launcher.ReadNodeJob(in)
	if err != nil {
		return &exit.Error{Code: exit.RunUsage, Err: err, Hint: "fabrun itself starts 'fabrun rank --stay', on each node"}
	}
	env := job.Carry.OnNode(job.Env, a.Env, isDirectory)
	path, _ := cmdline.Lookup(env, "PATH")
	if job.Dir != "" && !isDirectory(job.Dir) {
		return &exit.Error{Code: launcher.StatusNotExecutable, Err: fmt.Errorf("%s: no such directory on this node", job.Dir), Hint: "have it on a file system that all nodes share"}
	}
	file, err := launcher.LookPath(job.Argv[0], path, job.Dir)
	if err != nil {
		return StartError(job.Argv[0], err)
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(job.Dir, file)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return &exit.Error{Code: exit.Internal, Err: err}
	}
	//nolint:errcheck // opened for reading
	defer null.Close()
	env, alias, err := a.rankAlias(env)
	if err != nil {
		return &exit.Error{Code: exit.Internal, Err: err}
	}
	defer alias.Remove()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	signals := make(chan syscall.Signal)
	go func() {
		launcher.Orders(in, func(sig syscall.Signal) {
			select {
			case signals <- sig:
			case <-ctx.Done():
			}
		})
		end()
	}()
	st, err := launcher.Run(ctx, launcher.Spec{
		Path: file, Argv: job.Argv, Env: env, WorkDir: job.Dir, Stdin: null, Stdout: asFile(a.Stdout), Stderr: asFile(a.Stderr),
		Ranks: true, Guard: true, Mark: job.Mark, Signals: signals,
	})
	if err != nil {
		return StartError(job.Argv[0], err)
	}
	if st.Code == 0 {
		return nil
	}
	return &exit.Error{Code: st.Code}
}

// rankAlias puts this program first in PATH under the name that torchrun calls.
func (a *Call) rankAlias(env []string) ([]string, *launcher.RunDir, error) {
	name, ok := cmdline.Lookup(env, plan.AsName)
	if !ok || filepath.Base(name) != name {
		return env, nil, nil
	}
	d, err := launcher.MakeRunDir(launcher.RunDirBases(cmdline.Value(a.Env, "TMPDIR")), launcher.NewMark())
	if err != nil {
		return nil, nil, err
	}
	if err := os.Symlink(a.Self(), filepath.Join(d.Path, name)); err != nil {
		d.Remove()
		return nil, nil, fmt.Errorf("giving fabrun rank the script's name: %w", err)
	}
	path, _ := cmdline.Lookup(env, "PATH")
	return withPath(env, d.Path+":"+path), d, nil
}

// withPath is the environment with another PATH.
func withPath(env []string, path string) []string {
	return append(slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "PATH=") }), "PATH="+path)
}

// AsRank turns a call under the name that torchrun calls into fabrun rank, and
// takes back what that name took.
func (a *Call) AsRank() ([]string, bool) {
	name, ok := a.Getenv(plan.AsName)
	if !ok || len(a.Args) == 0 || name == "" || filepath.Base(a.Args[0]) != name {
		return nil, false
	}
	path, _ := a.Getenv("PATH")
	if first, rest, ok := strings.Cut(path, ":"); ok {
		if to, err := os.Readlink(filepath.Join(first, name)); err == nil && to == a.Self() {
			path = rest
		}
	}
	env := slices.DeleteFunc(slices.Clone(a.Env), func(kv string) bool { return strings.HasPrefix(kv, plan.AsName+"=") })
	a.Env = withPath(env, path)
	return slices.Concat([]string{"rank", "--"}, a.Args[1:]), true
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
