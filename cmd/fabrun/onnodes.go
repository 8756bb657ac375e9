package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/openfoam"
	"fabrun/launcher/remote"
	"fabrun/topology/finding"
)

// wantedFile is a file or directory of the job that every node has to have at
// the same place.
type wantedFile struct {
	path string // absolute
	what finding.Finding
}

// wantedFiles are the files that the ranks of a command line need: where they
// start, what they run, and OpenFOAM's case. What the launcher brings there
// itself, and what lies in a container, is not among them.
func (a *app) wantedFiles(cmd cmdline.Command) []wantedFile {
	dir, err := os.Getwd()
	if err != nil || !cmdline.ReadsCommandLine(cmd.Launcher.Dialect) || cmd.Container() != "" || cmd.Preloads() {
		return nil
	}
	var out []wantedFile
	add := func(path string, f finding.Finding) {
		if !slices.ContainsFunc(out, func(w wantedFile) bool { return w.path == path }) {
			out = append(out, wantedFile{path, f})
		}
	}
	at := dir
	if wd := cmd.WorkDir(); wd != "" {
		if at = wd; !filepath.IsAbs(wd) {
			at = filepath.Join(dir, wd)
		}
	}
	program := cmd.Program()
	const shared = "put it on a file system that all nodes share"
	switch args := openfoam.ReadArguments(program); {
	case args.Parallel && !filepath.IsAbs(args.Case):
		add(filepath.Join(at, args.Case), finding.Finding{
			ID: "openfoam.case", Severity: finding.Error, Why: "the case is not there: its ranks end at once", Hint: "have the case on a file system that all nodes share, or on every node at this place",
		})
	case args.Parallel:
		add(args.Case, finding.Finding{
			ID: "openfoam.case", Severity: finding.Error, Why: "the case is not there: its ranks end at once", Hint: "have the case on a file system that all nodes share, or on every node at this place",
		})
	default:
		add(at, finding.Finding{ID: "node.directory", Severity: finding.Warning, Why: "ranks start in another directory there, or not at all", Hint: shared})
	}
	if cmd.Launcher.Dialect == cmdline.Torchrun || cmd.Launcher.Dialect == cmdline.Horovodrun {
		return out
	}
	path, _ := a.getenv("PATH")
	for _, name := range cmd.Executables() {
		file := name
		if strings.Contains(name, "/") && !filepath.IsAbs(name) {
			file = filepath.Join(at, name)
		}
		file, err := launcher.LookPath(file, path, at)
		if err != nil || !filepath.IsAbs(file) {
			continue // the launcher says so itself
		}
		f := finding.Finding{ID: "node.program", Severity: finding.Error, Why: "the program cannot be started there", Hint: shared}
		if !strings.Contains(name, "/") {
			f.Severity, f.Why = finding.Warning, "it is in PATH here and not at the same place there: another one may run, or none"
			f.Hint = "install it alike on all nodes, or name it by its path"
		}
		add(file, f)
	}
	return out
}

// missingOnNodes asks the hosts which of the wanted files they have, in one
// command each, and says which are missing where.
func missingOnNodes(ctx context.Context, t remote.Transport, on []string, files []wantedFile) []finding.Finding {
	if len(on) == 0 || len(files) == 0 {
		return nil
	}
	argv := []string{"ls", "-d", "--"}
	for _, f := range files {
		argv = append(argv, f.path)
	}
	missing := make([][]string, len(files))
	for _, r := range remote.RunSame(ctx, t, on, remote.Command{Argv: argv}, remote.Options{Deadline: lookDeadline}) {
		if r.Err != nil || r.Status > 2 {
			continue // it could not be asked, which is no answer
		}
		lines := strings.Split(string(r.Stdout), "\n")
		for i, f := range files {
			if !slices.Contains(lines, f.path) {
				missing[i] = append(missing[i], r.Host)
			}
		}
	}
	var out []finding.Finding
	for i, names := range missing {
		if len(names) == 0 {
			continue
		}
		f := files[i].what
		f.Subject = files[i].path
		f.Seen, f.Wanted = "not on "+hosts.Compress(names), "there on every node"
		out = append(out, f)
	}
	return out
}
