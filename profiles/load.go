package profiles

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed builtin
var builtins embed.FS

// BuiltIn is the Source of a profile that no file changed.
const BuiltIn = "built-in"

// Dirs are the directories that may hold profiles, lowest first: later ones
// are merged over earlier ones, and all of them over the built-ins. Each holds
// NAME.toml files for fabrics, and workloads/NAME.toml.
type Dirs []string

// UnknownError is a name that neither a built-in nor a file has.
type UnknownError struct {
	Kind  string // "fabric profile", "workload profile"
	Name  string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("no %s named %q", e.Kind, e.Name)
}

// Info is one line of a list of profiles.
type Info struct {
	Name   string
	About  string
	Source string
	Err    error // the file is there and cannot be read as a profile
}

// Load returns the fabric profile of that name: the built-in with the files of
// dirs merged over it. A name with a slash, or ending in .toml, is a file: it
// is merged over the profile of the same name, if there is one.
// Errors in files begin with "path:line:".
func Load(dirs Dirs, name string) (Profile, error) {
	var p Profile
	err := load(dirs, name, "fabric profile", func(path, text string) (string, error) {
		var r rawProfile
		d, err := decode(path, text, &r)
		if err != nil {
			return "", err
		}
		if err := d.checkProfile(&r); err != nil {
			return "", err
		}
		p.overlay(d, &r)
		return p.Name, nil
	}, func() { p = Profile{} })
	if err != nil {
		return Profile{}, err
	}
	return p, checkWhole(&p)
}

// LoadWorkload is Load for workload profiles.
func LoadWorkload(dirs Dirs, name string) (Workload, error) {
	var w Workload
	err := load(dirs, name, "workload profile", func(path, text string) (string, error) {
		var r rawWorkload
		d, err := decode(path, text, &r)
		if err != nil {
			return "", err
		}
		if err := d.checkWorkload(&r); err != nil {
			return "", err
		}
		w.overlay(d, &r)
		return w.Name, nil
	}, func() { w = Workload{} })
	return w, err
}

func isFile(name string) bool {
	return strings.ContainsRune(name, '/') || strings.HasSuffix(name, ".toml")
}

func subdir(kind string) string {
	if kind == "workload profile" {
		return "workloads"
	}
	return ""
}

// load calls add for every text that name consists of, lowest layer first; it
// returns the name so far. reset forgets what was added.
func load(dirs Dirs, name, kind string, add func(path, text string) (string, error), reset func()) error {
	if isFile(name) {
		text, err := readFile(name)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		own, err := add(name, text)
		if err != nil {
			return err
		}
		if own == "" {
			own = strings.TrimSuffix(filepath.Base(name), ".toml")
		}
		// now that its name is known: the layers below first, then the file again
		reset()
		var unknown *UnknownError
		if err := load(dirs, own, kind, add, reset); err != nil && !errors.As(err, &unknown) {
			return err
		}
		_, err = add(name, text)
		return err
	}
	found := false
	// embed.FS never fails on a name that is there; a wrong name is fs.ErrNotExist
	if text, err := builtins.ReadFile(path.Join("builtin", subdir(kind), name+".toml")); err == nil {
		if _, err := add(BuiltIn, string(text)); err != nil {
			return err
		}
		found = true
	}
	for _, dir := range dirs {
		if dir == "" || !isName(name) {
			continue
		}
		file := filepath.Join(dir, subdir(kind), name+".toml")
		text, err := readFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		own, err := add(file, text)
		if err != nil {
			return err
		}
		if own != "" && own != name {
			return fmt.Errorf("%s: the file is called %s.toml, but says name = %q", file, name, own)
		}
		found = true
	}
	if !found {
		return &UnknownError{Kind: kind, Name: name, Known: names(dirs, subdir(kind))}
	}
	return nil
}

func readFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("read %q: %w", name, err)
	}
	return string(text), nil
}

// names are the names that can be loaded, sorted.
func names(dirs Dirs, sub string) []string {
	out := namesIn(dirs, sub)
	if entries, err := builtins.ReadDir(path.Join("builtin", sub)); err == nil {
		out = appendNames(out, entries)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// namesIn are those that the directories have.
func namesIn(dirs Dirs, sub string) (out []string) {
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		// a directory that is absent or closed to us has no profiles for us
		if entries, err := os.ReadDir(filepath.Join(dir, sub)); err == nil {
			out = appendNames(out, entries)
		}
	}
	return out
}

func appendNames(out []string, entries []fs.DirEntry) []string {
	for _, e := range entries {
		if n, ok := strings.CutSuffix(e.Name(), ".toml"); ok && !e.IsDir() {
			out = append(out, n)
		}
	}
	return out
}

// List returns every fabric profile that can be loaded, by name. Files that
// are wrong are listed with their error.
func List(dirs Dirs) []Info {
	var out []Info
	for _, n := range names(dirs, "") {
		p, err := Load(dirs, n)
		out = append(out, Info{Name: n, About: p.About, Source: p.Source, Err: err})
	}
	return out
}

// WorkloadFor returns the first workload profile, in name order, one of whose
// programs is this one. Files that cannot be read as a profile are passed over.
func WorkloadFor(dirs Dirs, program string) (Workload, bool) {
	for _, n := range names(dirs, "workloads") {
		if !mentions(dirs, n, program) {
			continue
		}
		w, err := LoadWorkload(dirs, n)
		if err == nil && slices.ContainsFunc(w.Programs, func(p string) bool { return matches(p, program) }) {
			return w, true
		}
	}
	return Workload{}, false
}

func matches(pattern, program string) bool {
	ok, err := path.Match(pattern, program)
	return err == nil && ok
}

// mentions reports whether a quoted word of a workload's files fits the
// program. Parsing every profile for one name would be the dearest part of a
// plan.
func mentions(dirs Dirs, workload, program string) bool {
	texts := make([]string, 0, 2)
	if text, err := builtins.ReadFile(path.Join("builtin", "workloads", workload+".toml")); err == nil {
		texts = append(texts, string(text))
	}
	for _, dir := range dirs {
		if text, err := readFile(filepath.Join(dir, "workloads", workload+".toml")); err == nil {
			texts = append(texts, text)
		}
	}
	for _, text := range texts {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '"' || r == '\'' || r == '\n' }) {
			if matches(word, program) {
				return true
			}
		}
	}
	return false
}

// ListWorkloads is List for workload profiles.
func ListWorkloads(dirs Dirs) []Info {
	var out []Info
	for _, n := range names(dirs, "workloads") {
		w, err := LoadWorkload(dirs, n)
		out = append(out, Info{Name: n, About: w.About, Source: w.Source, Err: err})
	}
	return out
}

// LoadAny loads a fabric profile or, where no such one is there, a workload
// profile; exactly one of the two is not nil.
func LoadAny(dirs Dirs, name string) (*Profile, *Workload, error) {
	if isFile(name) {
		return CheckFile(dirs, name)
	}
	p, err := Load(dirs, name)
	var unknown *UnknownError
	if !errors.As(err, &unknown) {
		return &p, nil, err
	}
	w, werr := LoadWorkload(dirs, name)
	if errors.As(werr, &unknown) {
		return nil, nil, err
	}
	return nil, &w, werr
}

// CheckFile reads one file as the kind of profile that its keys make it.
func CheckFile(dirs Dirs, file string) (*Profile, *Workload, error) {
	if !isFile(file) {
		file = "./" + file
	}
	p, err := Load(dirs, file)
	if err == nil {
		return &p, nil, nil
	}
	w, werr := LoadWorkload(dirs, file)
	if werr == nil {
		return nil, &w, nil
	}
	text, rerr := readFile(file)
	if rerr == nil && workloadKeys().MatchString(text) {
		return nil, nil, werr
	}
	return nil, nil, err
}

// workloadKeys are lines that only a workload profile has.
var workloadKeys = lazy(`(?m)^(slots|reserve_cores|memory_channels|binding|mpi_options|forward|programs)\s*=`)
