package discover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"fabrun/envgen/vars"
	"fabrun/topology"
)

// sectionGIDZero counts the all-zero GIDs of each port, so that a snapshot
// does not carry hundreds of files that say nothing:
//
//	-- fabrun/gid-zero --
//	mlx5_0 1 252             HCA, port, how many
const sectionGIDZero = "fabrun/gid-zero"

// maxFile bounds one file of a snapshot. Files of sysfs have at most a page.
const maxFile = 1 << 20

// Capture writes a snapshot of fsys: everything that Read reads of it and
// nothing else, so that Read gives the same Host from the snapshot. Secrets are
// left out of every file.
func Capture(fsys fs.FS, w io.Writer) error {
	rec := &recorder{fsys: fsys, seen: map[string]entry{}, real: map[string]string{}}
	h, err := Read(rec)
	if err != nil {
		return err
	}
	rec.dropZeroGIDs(h)
	entries := make([]entry, 0, len(rec.seen))
	for _, e := range rec.seen {
		if e.kind == isFile {
			e.value = vars.Redact(e.value)
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	// A directory that was listed is only worth a line when nothing below it is known.
	kept := entries[:0]
	for i, e := range entries {
		if e.kind == isDir && slices.ContainsFunc(entries[i+1:], func(o entry) bool {
			return strings.HasPrefix(o.path, e.path+"/")
		}) {
			continue
		}
		kept = append(kept, e)
	}
	return writeEntries(w, kept)
}

// recorder passes everything on and remembers it, under paths without links.
type recorder struct {
	fsys fs.FS
	mu   sync.Mutex
	seen map[string]entry
	real map[string]string // directory → the same without links
}

func (r *recorder) note(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.seen[e.path]; ok && old.kind != isDir {
		return
	}
	r.seen[e.path] = e
}

// canonical follows the links of the directories above name, and remembers them.
func (r *recorder) canonical(name string) string {
	dir, base := path.Split(name)
	if dir == "" {
		return name
	}
	return r.realDir(strings.TrimSuffix(dir, "/"), maxLinks) + "/" + base
}

func (r *recorder) realDir(dir string, depth int) string {
	r.mu.Lock()
	got, ok := r.real[dir]
	r.mu.Unlock()
	if ok || depth == 0 {
		return got
	}
	real := dir
	if up, base := path.Split(dir); up != "" {
		real = path.Join(r.realDir(strings.TrimSuffix(up, "/"), depth), base)
	}
	if target, err := fs.ReadLink(r.fsys, real); err == nil {
		r.note(entry{path: real, kind: isLink, value: target})
		real = r.realDir(follow(real, target), depth-1)
	}
	r.mu.Lock()
	r.real[dir] = real
	r.mu.Unlock()
	return real
}

// follow returns where the link at name leads. A target that climbs above the
// root stays at it, as in the kernel.
func follow(name, target string) string {
	// Nearly every link of sysfs climbs, then descends to a plain path.
	dir, below := parent(name), target
	for strings.HasPrefix(below, "../") && dir != "." {
		dir, below = parent(dir), below[3:]
	}
	if dir != "." && fs.ValidPath(below) && below != "." {
		return dir + "/" + below
	}
	if !strings.HasPrefix(target, "/") {
		target = path.Join("/", path.Dir(name), target)
	}
	if at := strings.TrimPrefix(path.Clean(target), "/"); at != "" {
		return at
	}
	return "."
}

// failed remembers a path that is there and cannot be read.
func (r *recorder) failed(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return
	}
	if at := r.canonical(name); fs.ValidPath(at) {
		r.note(entry{path: at, kind: isUnreadable, value: Reason(err)})
	}
}

// final follows links at the end of name too, remembering them.
func (r *recorder) final(name string) string {
	at := r.canonical(name)
	for range maxLinks {
		target, err := fs.ReadLink(r.fsys, at)
		if err != nil {
			break
		}
		r.note(entry{path: at, kind: isLink, value: target})
		at = r.canonical(follow(at, target))
	}
	return at
}

func (r *recorder) ReadFile(name string) ([]byte, error) {
	text, err := fs.ReadFile(r.fsys, name)
	if err != nil {
		r.failed(name, err)
		return nil, err
	}
	at := r.final(name)
	if len(text) > maxFile {
		r.note(entry{path: at, kind: isUnreadable, value: "EFBIG"})
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EFBIG}
	}
	r.note(entry{path: at, kind: isFile, value: string(text)})
	return text, nil
}

// readHead is what readHead below asks of a file system that wants to know.
func (r *recorder) readHead(name string, n int) ([]byte, error) {
	text, err := readHead(r.fsys, name, n)
	if err != nil {
		r.failed(name, err)
		return nil, err
	}
	r.note(entry{path: r.final(name), kind: isFile, value: string(text)})
	return text, nil
}

func (r *recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(r.fsys, name)
	if err != nil {
		r.failed(name, err)
		return list, err
	}
	if at := r.final(name); at != "." {
		r.note(entry{path: at, kind: isDir})
	}
	return list, nil
}

func (r *recorder) ReadLink(name string) (string, error) {
	target, err := fs.ReadLink(r.fsys, name)
	if err == nil {
		r.note(entry{path: r.canonical(name), kind: isLink, value: target})
	}
	return target, err
}

func (r *recorder) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(r.fsys, name) }

// Stat notes a directory: that it is there is all that was asked.
func (r *recorder) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(r.fsys, name)
	if err != nil {
		r.failed(name, err)
		return nil, err
	}
	if info.IsDir() {
		if at := r.final(name); at != "." {
			r.note(entry{path: at, kind: isDir})
		}
	}
	return info, nil
}

// Open is not used by Read; it is there because an fs.FS must have it.
func (r *recorder) Open(name string) (fs.File, error) { return r.fsys.Open(name) }

// dropZeroGIDs replaces the files of all-zero GIDs by their count.
func (r *recorder) dropZeroGIDs(h topology.Host) {
	var b strings.Builder
	for _, c := range h.HCAs {
		for _, p := range c.Ports {
			if p.GIDZero > 0 {
				fmt.Fprintf(&b, "%s %d %d\n", c.Name, p.Number, p.GIDZero)
			}
		}
	}
	for name, e := range r.seen {
		if e.kind == isFile && path.Base(path.Dir(name)) == "gids" && isZeroGID(e.value) {
			delete(r.seen, name)
		}
	}
	if b.Len() > 0 {
		r.seen[sectionGIDZero] = entry{path: sectionGIDZero, kind: isFile, value: b.String()}
	}
}
