package live

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"fabrun/topology"
	"fabrun/topology/discover"
)

// Asked is a path that a job needs on every host.
type Asked struct {
	Role string // topology.RoleProgram or topology.RoleDirectory
	Path string // absolute, or for a program a name to be found in PATH
}

// Bounds of what is followed for one program.
const (
	maxLibraries = 256
	maxHashed    = 64 << 20 // bytes of a file without a build ID that are hashed
)

// Places looks at what is asked for: whether it is there, what it is, and for a
// program the libraries that the loader would take, without starting it.
// libraryPath goes after this process's own LD_LIBRARY_PATH: a launcher may or
// may not forward it.
func Places(root fs.FS, env []string, asked []Asked, libraryPath string) []topology.Place {
	m := &machine{root: root, path: "/", opts: Options{Env: env}}
	return m.lookAtPlaces(asked, libraryPath)
}

func (m *machine) lookAtPlaces(asked []Asked, libraryPath string) []topology.Place {
	var out []topology.Place
	for _, a := range asked {
		switch a.Role {
		case topology.RoleProgram:
			out = append(out, m.programPlaces(a.Path, libraryPath)...)
		case topology.RoleDirectory:
			out = append(out, m.directoryPlace(a.Path))
		}
	}
	return out
}

// places is the section's text.
func (m *machine) places() ([]byte, error) {
	return discover.PlacesText(m.lookAtPlaces(m.opts.Places, m.opts.LibraryPath)), nil
}

func treePath(p string) (string, bool) {
	p = strings.TrimPrefix(path.Clean("/"+p), "/")
	if p == "" {
		p = "."
	}
	return p, fs.ValidPath(p)
}

func (m *machine) directoryPlace(dir string) topology.Place {
	p := topology.Place{Role: topology.RoleDirectory, Path: dir}
	name, ok := treePath(dir)
	if !ok {
		p.Missing = "EINVAL"
		return p
	}
	st, err := fs.Stat(m.root, name)
	switch {
	case err != nil:
		p.Missing = reasonOf(err)
	case !st.IsDir():
		p.Missing = "ENOTDIR"
	default:
		p.Mount = m.mountOf(dir)
	}
	return p
}

func reasonOf(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "ENOENT"
	}
	return discover.Reason(err)
}

// mountOf is the type and source of the file system that holds p: "nfs4
// nas:/home", "ext4" for what is this machine's own. Sources of local file
// systems are device names, which differ between equal hosts.
func (m *machine) mountOf(p string) string {
	best, kind := "", ""
	for line := range strings.Lines(m.read("proc/self/mountinfo")) {
		// "36 35 98:0 /root /mount opts shared:1 - type source superopts"
		head, tail, ok := strings.Cut(line, " - ")
		w, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(w) < 5 || len(t) < 2 {
			continue
		}
		at := unescapeMount(w[4])
		if p != at && at != "/" && !strings.HasPrefix(p, at+"/") || len(at) < len(best) {
			continue
		}
		best, kind = at, t[0]
		if strings.Contains(t[1], ":") || strings.Contains(t[1], "@") || networkFS(t[0]) {
			kind += " " + unescapeMount(t[1])
		}
	}
	return oneLine(kind)
}

// unescapeMount undoes the octal escapes of proc_pid_mountinfo(5).
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func networkFS(kind string) bool { return topology.SharedFileSystem(kind) }

func (m *machine) programPlaces(program, libraryPath string) []topology.Place {
	p := topology.Place{Role: topology.RoleProgram, Path: program}
	name, missing := m.findProgram(program)
	if missing != "" {
		p.Missing = missing
		return []topology.Place{p}
	}
	p.Path = "/" + name
	p.Mount = m.mountOf(p.Path)
	if script := m.interpreter(name); script != "" {
		p.ID, p.Detail = m.contentID(name), "script of "+script
		return []topology.Place{p}
	}
	p.ID = m.contentID(name)
	return append([]topology.Place{p}, m.librariesOf(name, libraryPath)...)
}

// findProgram finds a program as execvp would.
func (m *machine) findProgram(program string) (name, missing string) {
	try := func(p string) (string, string) {
		name, ok := treePath(p)
		if !ok {
			return "", "EINVAL"
		}
		st, err := fs.Stat(m.root, name)
		switch {
		case err != nil:
			return "", reasonOf(err)
		case st.IsDir():
			return "", "EISDIR"
		case st.Mode()&0o111 == 0:
			return "", "EACCES"
		}
		return name, ""
	}
	if strings.Contains(program, "/") {
		return try(program)
	}
	missing = "ENOENT"
	for _, dir := range m.pathList("PATH") {
		name, why := try(dir + "/" + program)
		if why == "" {
			return name, ""
		}
		if why != "ENOENT" {
			missing = why
		}
	}
	return "", missing
}

// interpreter is the first word of a script's #! line.
func (m *machine) interpreter(name string) string {
	head, err := readBounded(m.root, name, 256)
	if err != nil || !bytes.HasPrefix(head, []byte("#!")) {
		return ""
	}
	line, _, _ := strings.Cut(string(head[2:]), "\n")
	if w := strings.Fields(line); len(w) > 0 {
		return oneLine(w[0])
	}
	return ""
}

// contentID names a file's content: the linker's build ID where there is one,
// which costs one page, else a hash of all of it.
func (m *machine) contentID(name string) string {
	if id := m.buildID(name); id != "" {
		return "build-id:" + id
	}
	f, err := m.root.Open(name)
	if err != nil {
		return ""
	}
	//nolint:errcheck // read only
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, maxHashed+1))
	if err != nil || n > maxHashed {
		return ""
	}
	return fmt.Sprintf("sha256:%x", h.Sum(nil)[:10])
}

// buildID is the .note.gnu.build-id of an ELF file, 20 hexadecimal digits of it.
func (m *machine) buildID(name string) string {
	e, closer, err := m.openELF(name)
	if err != nil {
		return ""
	}
	//nolint:errcheck // read only
	defer closer.Close()
	return buildIDOf(e)
}

func buildIDOf(e *elf.File) string {
	s := e.Section(".note.gnu.build-id")
	if s == nil || s.Type == elf.SHT_NOBITS || s.Size > 4096 {
		return ""
	}
	note := make([]byte, s.Size)
	if _, err := s.ReadAt(note, 0); err != nil {
		return ""
	}
	// namesz, descsz, type, "GNU\0", description
	if len(note) < 16 {
		return ""
	}
	names, desc := e.ByteOrder.Uint32(note), e.ByteOrder.Uint32(note[4:])
	if names != 4 || desc == 0 || int64(desc) > int64(len(note))-16 {
		return ""
	}
	return fmt.Sprintf("%x", note[16:16+min(desc, 10)])
}

// object is what the loader needs to know of one ELF file.
type object struct {
	class   elf.Class
	machine elf.Machine
	needs   []string
	rpath   []string // DT_RPATH: for the needs of this file and of what it loads
	runpath []string // DT_RUNPATH: for its own needs
	id      string
}

func (m *machine) object(name string) (object, bool) {
	e, closer, err := m.openELF(name)
	if err != nil {
		return object{}, false
	}
	//nolint:errcheck // read only
	defer closer.Close()
	o := object{class: e.Class, machine: e.Machine, id: buildIDOf(e)}
	if o.needs, err = e.ImportedLibraries(); err != nil {
		return o, true // static, or no dynamic section
	}
	dirs := func(tag elf.DynTag) []string {
		var out []string
		vs, _ := e.DynString(tag)
		for _, v := range vs {
			for d := range strings.SplitSeq(v, ":") {
				d = strings.NewReplacer("$ORIGIN", "/"+path.Dir(name), "${ORIGIN}", "/"+path.Dir(name), "$LIB", "lib", "${LIB}", "lib").Replace(d)
				if strings.HasPrefix(d, "/") {
					out = append(out, d)
				}
			}
		}
		return out
	}
	o.runpath = dirs(elf.DT_RUNPATH)
	if len(o.runpath) == 0 {
		o.rpath = dirs(elf.DT_RPATH)
	}
	return o, true
}

// defaultLibDirs are searched last (ld.so(8)); which of them the loader was
// built with is the distribution's.
var defaultLibDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib/powerpc64le-linux-gnu", "/usr/lib/powerpc64le-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// librariesOf follows what a program needs in the loader's order (ld.so(8)):
// DT_RPATH, LD_LIBRARY_PATH, DT_RUNPATH, the cache, the default directories.
func (m *machine) librariesOf(program, libraryPath string) []topology.Place {
	main, ok := m.object(program)
	if !ok {
		return nil
	}
	cache := map[string][]string{}
	if text, err := readBounded(m.root, "etc/ld.so.cache", 16<<20); err == nil {
		cache = readLoaderCache(text)
	}
	env := slashed(m.pathList("LD_LIBRARY_PATH"))
	var extra []string
	for d := range strings.SplitSeq(libraryPath, ":") {
		if strings.HasPrefix(d, "/") && !slices.Contains(env, path.Clean(d)) {
			extra = append(extra, path.Clean(d))
		}
	}
	type todo struct {
		obj   object
		rpath []string // of the chain that loads it
	}
	seen := map[string]bool{}
	queue := []todo{{main, main.rpath}}
	var out []topology.Place
	for len(queue) > 0 && len(out) < maxLibraries {
		at := queue[0]
		queue = queue[1:]
		for _, need := range at.obj.needs {
			if seen[need] || len(out) == maxLibraries {
				continue
			}
			seen[need] = true
			p := topology.Place{Role: topology.RoleLibrary, Detail: oneLine(need), Missing: "ENOENT"}
			var candidates []string
			in := func(dirs []string) {
				for _, d := range dirs {
					candidates = append(candidates, path.Join(d, need))
				}
			}
			if strings.Contains(need, "/") {
				candidates = append(candidates, need)
			} else {
				in(at.rpath)
				in(env)
				in(at.obj.runpath)
				candidates = append(candidates, cache[need]...)
				in(defaultLibDirs)
			}
			own := len(candidates)
			in(extra)
			for i, c := range candidates {
				name, ok := treePath(c)
				if !ok {
					continue
				}
				o, ok := m.object(name)
				if !ok || o.class != main.class || o.machine != main.machine {
					continue
				}
				p.Path, p.Missing, p.ID = c, "", ""
				if o.id != "" {
					p.ID = "build-id:" + o.id
				} else {
					p.ID = m.contentID(name)
				}
				if i >= own {
					p.Missing = topology.OnlyByLibraryPath
				}
				rpath := append(slices.Clone(o.rpath), at.rpath...)
				if len(o.runpath) > 0 {
					rpath = nil // DT_RUNPATH takes the chain's DT_RPATH away
				}
				queue = append(queue, todo{o, rpath})
				break
			}
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b topology.Place) int { return strings.Compare(a.Detail, b.Detail) })
	return out
}

func slashed(dirs []string) []string {
	out := make([]string, len(dirs))
	for i, d := range dirs {
		out[i] = "/" + d
	}
	return out
}

// Layout of /etc/ld.so.cache (glibc, sysdeps/generic/dl-cache.h): the new
// format alone, or behind the old one.
const (
	cacheMagicOld = "ld.so-1.7.0\x00"
	cacheMagicNew = "glibc-ld.so.cache1.1"
	cacheHead     = 48
	cacheEntry    = 24
	maxCacheLibs  = 1 << 16
)

// readLoaderCache maps sonames to files, in the cache's order; nothing where it
// cannot be read.
func readLoaderCache(text []byte) map[string][]string {
	out := map[string][]string{}
	if bytes.HasPrefix(text, []byte(cacheMagicOld)) && len(text) >= 16 {
		n := int64(binary.NativeEndian.Uint32(text[12:]))
		at := (16 + n*12 + 7) &^ 7
		if at > int64(len(text)) {
			return out
		}
		text = text[at:]
	}
	if !bytes.HasPrefix(text, []byte(cacheMagicNew)) || len(text) < cacheHead {
		return out
	}
	n := int(min(binary.NativeEndian.Uint32(text[20:]), maxCacheLibs))
	word := func(at uint32) string {
		if int64(at) >= int64(len(text)) {
			return ""
		}
		s := text[at:]
		if end := bytes.IndexByte(s[:min(len(s), 4096)], 0); end >= 0 {
			return string(s[:end])
		}
		return ""
	}
	for i := range n {
		at := cacheHead + i*cacheEntry
		if at+cacheEntry > len(text) {
			break
		}
		key, value := word(binary.NativeEndian.Uint32(text[at+4:])), word(binary.NativeEndian.Uint32(text[at+8:]))
		// Variants for newer CPUs come first; the plain one is what all hosts can have.
		if key != "" && strings.HasPrefix(value, "/") && !strings.Contains(value, "/glibc-hwcaps/") {
			out[key] = append(out[key], value)
		}
	}
	return out
}
