package live

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Patience bounds a look at a machine. A driver that hangs blocks whoever reads
// its files in the kernel, where no signal and no deadline reaches: the reader is
// left behind, and the look begins anew without that file.
type Patience struct {
	Stall time.Duration // without any file answering; 0: 2 s
	Total time.Duration // for all of it; 0: 10 s
}

// StalledError is a look that was given up. Files gave no answer.
type StalledError struct {
	Files []string
	After time.Duration
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("no answer within %v from %s", e.After, strings.Join(e.Files[max(0, len(e.Files)-3):], ", "))
}

// Attempt is one try to look. What it reads through FS is seen to answer.
type Attempt struct {
	mu      sync.Mutex
	last    time.Time // when something was begun or answered
	flying  []*flight
	blocked []string // paths that are not asked any more, with all below them
}

// flight is something that was begun and has not answered.
type flight struct {
	name string
	kind flightKind
}

type flightKind int

const (
	aFile    flightKind = iota
	aSection            // of facts, which may read files
	aProgram            // a section that starts programs, which end at a deadline of their own
)

// Patiently looks, and leaves out what does not answer: those paths are returned.
// look may be called several times, each time by a goroutine of its own, and one
// that is left behind may still be in it: it keeps what it reads to itself.
func Patiently[T any](ctx context.Context, p Patience, look func(*Attempt) (T, error)) (T, []string, error) {
	if p.Stall <= 0 {
		p.Stall = 2 * time.Second
	}
	if p.Total <= 0 {
		p.Total = 10 * time.Second
	}
	var zero T
	var blocked []string
	type result struct {
		v   T
		err error
	}
	total := time.NewTimer(p.Total)
	defer total.Stop()
	tick := time.NewTicker(p.Stall / 4)
	defer tick.Stop()
	for tries := 0; ; tries++ {
		a := &Attempt{last: time.Now(), blocked: slices.Clone(blocked)}
		done := make(chan result, 1)
		go func() {
			v, err := look(a)
			done <- result{v, err}
		}()
		var stuck []string
		for stuck == nil {
			select {
			case r := <-done:
				return r.v, blocked, r.err
			case <-ctx.Done():
				return zero, blocked, context.Cause(ctx)
			case <-total.C:
				if a.waitsForProgram() {
					total.Reset(p.Stall)
					continue
				}
				return zero, blocked, &StalledError{Files: append(blocked, a.stuck(0, 0)...), After: p.Total}
			case <-tick.C:
				// A driver that hangs has many such files: each time a level more is left out.
				stuck = a.stuck(p.Stall, tries)
			}
		}
		blocked = append(blocked, stuck...)
	}
}

// stuck is what has not answered for so long, levels up; nil where something has.
func (a *Attempt) stuck(stall time.Duration, levels int) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.last) < stall || a.program() {
		return nil
	}
	var files, sections []string
	for _, f := range a.flying {
		if f.kind != aFile {
			sections = append(sections, f.name)
			continue
		}
		name := f.name
		for range levels {
			if up := path.Dir(name); strings.Count(up, "/") > 2 {
				name = up
			}
		}
		if !slices.Contains(files, name) {
			files = append(files, name)
		}
	}
	if files == nil {
		return sections
	}
	return files
}

// waitsForProgram says whether a program that was started is waited for: a busy
// machine is slow to start one, and nothing hangs.
func (a *Attempt) waitsForProgram() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.program()
}

func (a *Attempt) program() bool {
	return slices.ContainsFunc(a.flying, func(f *flight) bool { return f.kind == aProgram })
}

func (a *Attempt) begin(op, name string, kind flightKind) (*flight, error) {
	if a == nil {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.blocked {
		if name == b || strings.HasPrefix(name, b+"/") {
			return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ETIMEDOUT}
		}
	}
	f := &flight{name, kind}
	a.flying, a.last = append(a.flying, f), time.Now()
	return f, nil
}

func (a *Attempt) end(f *flight) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = time.Now()
	if i := slices.Index(a.flying, f); i >= 0 {
		a.flying = slices.Delete(a.flying, i, i+1)
	}
}

// FS is a tree that is read with patience.
func (a *Attempt) FS(root fs.FS) fs.FS {
	if a == nil {
		return root
	}
	return guarded{a, root}
}

type guarded struct {
	a    *Attempt
	root fs.FS
}

var (
	_ fs.ReadFileFS = guarded{}
	_ fs.ReadDirFS  = guarded{}
	_ fs.StatFS     = guarded{}
	_ fs.ReadLinkFS = guarded{}
)

func guard[T any](a *Attempt, op, name string, do func() (T, error)) (T, error) {
	f, err := a.begin(op, name, aFile)
	if err != nil {
		var zero T
		return zero, err
	}
	defer a.end(f)
	return do()
}

// Open implements fs.FS.
func (g guarded) Open(name string) (fs.File, error) {
	f, err := guard(g.a, "open", name, func() (fs.File, error) { return g.root.Open(name) })
	if err != nil {
		return nil, err
	}
	if dir, ok := f.(fs.ReadDirFile); ok {
		if st, err := f.Stat(); err == nil && st.IsDir() {
			return dir, nil
		}
	}
	file := guardedFile{f, g.a, name}
	if at, ok := f.(io.ReaderAt); ok {
		return guardedReaderAt{file, at}, nil
	}
	return file, nil
}

// ReadFile implements fs.ReadFileFS.
func (g guarded) ReadFile(name string) ([]byte, error) {
	return guard(g.a, "read", name, func() ([]byte, error) { return fs.ReadFile(g.root, name) })
}

// ReadDir implements fs.ReadDirFS.
func (g guarded) ReadDir(name string) ([]fs.DirEntry, error) {
	return guard(g.a, "readdir", name, func() ([]fs.DirEntry, error) { return fs.ReadDir(g.root, name) })
}

// Stat implements fs.StatFS.
func (g guarded) Stat(name string) (fs.FileInfo, error) {
	return guard(g.a, "stat", name, func() (fs.FileInfo, error) { return fs.Stat(g.root, name) })
}

// Lstat implements fs.ReadLinkFS.
func (g guarded) Lstat(name string) (fs.FileInfo, error) {
	return guard(g.a, "lstat", name, func() (fs.FileInfo, error) { return fs.Lstat(g.root, name) })
}

// ReadLink implements fs.ReadLinkFS.
func (g guarded) ReadLink(name string) (string, error) {
	return guard(g.a, "readlink", name, func() (string, error) { return fs.ReadLink(g.root, name) })
}

type guardedFile struct {
	fs.File
	a    *Attempt
	name string
}

func (f guardedFile) Read(p []byte) (int, error) {
	// fs.File wants io.EOF as it is.
	return guard(f.a, "read", f.name, func() (int, error) { return f.File.Read(p) })
}

type guardedReaderAt struct {
	guardedFile
	at io.ReaderAt
}

func (f guardedReaderAt) ReadAt(p []byte, off int64) (int, error) {
	return guard(f.a, "read", f.name, func() (int, error) { return f.at.ReadAt(p, off) })
}
