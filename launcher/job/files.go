package job

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/openfoam"
	"fabrun/topology"
	"fabrun/topology/finding"
	"fabrun/topology/live"
)

// wantedFile is a file or directory of the job that every node has to have at
// the same place.
type wantedFile struct {
	role string // topology.RoleProgram or RoleDirectory
	path string // absolute
	what finding.Finding
}

// wantedFiles are the files that the ranks of a command line need: where they
// start, what they run, and OpenFOAM's case. What the launcher brings there
// itself, and what lies in a container, is not among them.
func (a *Call) wantedFiles(cmd cmdline.Command) []wantedFile {
	dir, err := os.Getwd()
	if err != nil || !cmd.Launcher.Dialect.Reads() || cmd.Container() != "" || cmd.Preloads() {
		return nil
	}
	var out []wantedFile
	add := func(role, path string, f finding.Finding) {
		path = filepath.Clean(path)
		if !slices.ContainsFunc(out, func(w wantedFile) bool { return w.path == path }) {
			out = append(out, wantedFile{role, path, f})
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
		add(topology.RoleDirectory, filepath.Join(at, args.Case), finding.Finding{
			ID: "openfoam.case", Severity: finding.Error, Why: "the case is not there: its ranks end at once", Hint: "have the case on a file system that all nodes share, or on every node at this place",
		})
	case args.Parallel:
		add(topology.RoleDirectory, args.Case, finding.Finding{
			ID: "openfoam.case", Severity: finding.Error, Why: "the case is not there: its ranks end at once", Hint: "have the case on a file system that all nodes share, or on every node at this place",
		})
	default:
		add(topology.RoleDirectory, at, finding.Finding{ID: "node.directory", Severity: finding.Warning, Why: "ranks start in another directory there, or not at all", Hint: shared})
	}
	if cmd.Launcher.Dialect.Python {
		return out
	}
	path, _ := a.Getenv("PATH")
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
		add(topology.RoleProgram, file, f)
	}
	return out
}

// jobPlaces are the paths that a host is asked for when it looks at itself: the
// wanted files, and, for what is compared between hosts, every program that this
// machine has and the directory of the start.
func (a *Call) jobPlaces(cmd cmdline.Command, wanted []wantedFile) []live.Asked {
	var out []live.Asked
	add := func(role, path string) {
		if ask := (live.Asked{Role: role, Path: path}); !slices.Contains(out, ask) {
			out = append(out, ask)
		}
	}
	for _, f := range wanted {
		add(f.role, f.path)
	}
	for _, words := range cmd.Programs() {
		if cmd.Container() != "" || len(words) == 0 || words[0] == "" {
			continue // what is in an image is nowhere outside
		}
		path, _ := a.Getenv("PATH")
		file, err := launcher.LookPath(words[0], path, ".")
		if err != nil {
			continue // the launcher will say so, or it is on the other hosts only
		}
		if file, err = filepath.Abs(file); err == nil {
			add(topology.RoleProgram, file)
		}
	}
	if dir, err := os.Getwd(); err == nil {
		add(topology.RoleDirectory, dir)
	}
	return out
}

// missingOnNodes says which of the wanted files are missing where, by what the
// hosts said when they were asked. A host that said nothing of a file is not named.
func missingOnNodes(on []topology.Host, names []string, files []wantedFile) []finding.Finding {
	var out []finding.Finding
	for _, file := range files {
		var gone, unusable []string
		reason := ""
		for i, h := range on {
			at := slices.IndexFunc(h.Places, func(p topology.Place) bool { return p.Role == file.role && p.Path == file.path })
			switch {
			case at < 0 || h.Places[at].Missing == "":
			case h.Places[at].Missing == "ENOENT":
				gone = append(gone, names[i])
			default:
				unusable, reason = append(unusable, names[i]), h.Places[at].Missing
			}
		}
		f := file.what
		f.Subject, f.Wanted = file.path, "there on every node"
		if len(gone) > 0 {
			f.Seen = "not on " + hosts.Compress(gone)
			out = append(out, f)
		}
		if len(unusable) > 0 {
			f.Seen = "cannot be used on " + hosts.Compress(unusable) + " (" + reason + ")"
			out = append(out, f)
		}
	}
	return out
}
