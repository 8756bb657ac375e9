package discover

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A snapshot is one host as one text file:
//
//	fabrun-snapshot 1
//	-- proc/sys/kernel/hostname --
//	node1
//	sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:03.0/net/eth0
//	sys/devices/pci0000:00/0000:00:03.0/net/eth0/speed ! EINVAL
//	-- sys/class/infiniband/ --
//
// An entry is a file with its text, a link, a path that is there and could not
// be read (with the reason), or, with a slash at its end, a directory of which
// nothing else is known. Paths have no leading slash and entries are sorted, as
// bytes. Parents are not written: they follow.
//
// Inside a text, a line that could be taken for an entry, or that begins with
// a backslash, has a backslash put in front. The line "\ no newline at end"
// marks a text whose last line has none. A path with a space, a quote or a
// control character is written as a Go string.
const (
	snapshotHeader = "fabrun-snapshot 1"
	noNewline      = `\ no newline at end`

	maxSnapshot = 64 << 20 // bytes: two hundred times what a large host takes
	maxEntries  = 1 << 19
	maxPath     = 4096 // PATH_MAX
	maxLinks    = 40   // as Linux follows
)

type entryKind uint8

const (
	isFile entryKind = iota
	isLink
	isUnreadable
	isDir
)

// entry is one path of a snapshot; value is the text, the target or the reason.
type entry struct {
	path  string
	kind  entryKind
	value string
}

// Snapshot is a file tree read from a snapshot: an fs.FS rooted at / with
// links. A path that could not be read when it was taken gives the same error
// again. It never changes and can be used from several goroutines.
type Snapshot struct {
	entries []entry        // sorted by path
	index   map[string]int // path → entry; a directory that only follows from others is -1
}

// SyntaxError says where a snapshot cannot be read.
type SyntaxError struct {
	Line int
	Msg  string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("snapshot line %d: %s", e.Line, e.Msg) }

var errTooLarge = fmt.Errorf("snapshot is larger than %d MiB", maxSnapshot>>20)

// IsSnapshot reports whether text begins as a snapshot does, of any version.
func IsSnapshot(text string) bool { return strings.HasPrefix(text, "fabrun-snapshot ") }

// ReadSnapshot reads a whole snapshot. Errors are a *SyntaxError, or what r returned.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	// One byte more than allowed tells "too large" from "just fits".
	var b strings.Builder
	if sized, ok := r.(interface{ Len() int }); ok {
		b.Grow(min(sized.Len(), maxSnapshot) + 512)
	}
	n, err := io.Copy(&b, io.LimitReader(r, maxSnapshot+1))
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	if n > maxSnapshot {
		return nil, errTooLarge
	}
	return ParseSnapshot(b.String())
}

// ParseSnapshot is ReadSnapshot of a text that is there already; what is read
// from the Snapshot are parts of it.
func ParseSnapshot(text string) (*Snapshot, error) {
	if len(text) > maxSnapshot {
		return nil, errTooLarge
	}
	entries, err := parseEntries(text)
	if err != nil {
		return nil, err
	}
	return newSnapshot(entries)
}

func newSnapshot(entries []entry) (*Snapshot, error) {
	byPath := func(a, b entry) int { return strings.Compare(a.path, b.path) }
	if !slices.IsSortedFunc(entries, byPath) {
		slices.SortStableFunc(entries, byPath)
	}
	s := &Snapshot{entries: entries, index: make(map[string]int, len(entries)+len(entries)/3)}
	for i, e := range entries {
		if _, twice := s.index[e.path]; twice {
			return nil, fmt.Errorf("snapshot has %q twice", e.path)
		}
		s.index[e.path] = i
	}
	s.index["."] = -1
	for _, e := range entries {
		for dir := parent(e.path); dir != "."; dir = parent(dir) {
			i, known := s.index[dir]
			if !known {
				s.index[dir] = -1
				continue
			}
			if i >= 0 && s.entries[i].kind != isDir {
				return nil, fmt.Errorf("snapshot has %q below %q, which is no directory", e.path, dir)
			}
			break
		}
	}
	return s, nil
}

// parent is path.Dir of a clean path.
func parent(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return "."
}

func parseEntries(text string) ([]entry, error) {
	line, rest, _ := strings.Cut(text, "\n")
	switch line = strings.TrimSuffix(line, "\r"); {
	case line == snapshotHeader:
	case strings.HasPrefix(line, "fabrun-snapshot "):
		return nil, &SyntaxError{1, fmt.Sprintf("version %q: this fabrun reads version 1", line[len("fabrun-snapshot "):])}
	default:
		return nil, &SyntaxError{1, fmt.Sprintf("want %q, got %.40q", snapshotHeader, line)}
	}
	entries := make([]entry, 0, strings.Count(rest, "\n")/2)
	n := 1
	for rest != "" {
		line, after, _ := strings.Cut(rest, "\n")
		n++
		e, ok := parseEntry(line)
		if !ok {
			if strings.TrimSpace(line) == "" {
				rest = after
				continue
			}
			return nil, &SyntaxError{n, fmt.Sprintf("want '-- path --', 'path -> target' or 'path ! reason', got %.60q", line)}
		}
		if !fs.ValidPath(e.path) || e.path == "." || len(e.path) > maxPath {
			return nil, &SyntaxError{n, fmt.Sprintf("not a path below the root: %.60q", e.path)}
		}
		rest = after
		if e.kind == isFile {
			var lines int
			e.value, rest, lines = cutText(rest)
			n += lines
		}
		if len(entries) == maxEntries {
			return nil, &SyntaxError{n, fmt.Sprintf("more than %d entries", maxEntries)}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseEntry reads the line that begins an entry.
func parseEntry(line string) (entry, bool) {
	if name, ok := strings.CutPrefix(line, "-- "); ok {
		if name, ok = strings.CutSuffix(strings.TrimSuffix(name, "\r"), " --"); !ok {
			return entry{}, false
		}
		name, ok = unquotePath(name)
		if dir, cut := strings.CutSuffix(name, "/"); cut {
			return entry{path: dir, kind: isDir}, ok
		}
		return entry{path: name, kind: isFile}, ok
	}
	// The first blank ends the path, so nearly every line of text is dismissed here.
	end := strings.IndexByte(line, ' ')
	if strings.HasPrefix(line, `"`) {
		q, err := strconv.QuotedPrefix(line)
		if err != nil {
			return entry{}, false
		}
		end = len(q)
	}
	if end <= 0 {
		return entry{}, false
	}
	name, op := line[:end], line[end:]
	kind := isLink
	value, ok := strings.CutPrefix(op, " -> ")
	if !ok {
		kind = isUnreadable
		if value, ok = strings.CutPrefix(op, " ! "); !ok {
			return entry{}, false
		}
	}
	value = strings.TrimSuffix(value, "\r")
	if name, ok = unquotePath(name); !ok || value == "" || !fs.ValidPath(name) {
		return entry{}, false
	}
	if kind == isLink {
		if value[0] != '"' && strings.IndexByte(value, ' ') >= 0 {
			return entry{}, false
		}
		if value, ok = unquotePath(value); !ok || value == "" {
			return entry{}, false
		}
	}
	return entry{path: name, kind: kind, value: value}, true
}

func unquotePath(s string) (string, bool) {
	if !strings.HasPrefix(s, `"`) {
		return s, s != ""
	}
	u, err := strconv.Unquote(s)
	return u, err == nil && u != ""
}

func quotePath(s string) string {
	for _, r := range s {
		if r <= ' ' || r == '"' || r == '\\' || r >= 0x7f {
			return strconv.Quote(s)
		}
	}
	return s
}

// cutText returns the text of a file, what follows it, and how many lines it took.
func cutText(s string) (text, rest string, lines int) {
	end := 0
	escaped := false
	for end < len(s) {
		line := s[end:]
		if i := strings.IndexByte(line, '\n'); i >= 0 {
			line = line[:i]
		}
		if line != "" {
			if line[0] == '\\' {
				escaped = true
			} else if _, isEntry := parseEntry(line); isEntry {
				break
			}
		}
		end = min(end+len(line)+1, len(s))
		lines++
	}
	text, rest = s[:end], s[end:]
	if !escaped {
		return text, rest, lines
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, "\r\n") == noNewline {
			return strings.TrimSuffix(b.String(), "\n"), rest, lines
		}
		b.WriteString(strings.TrimPrefix(line, `\`))
	}
	return b.String(), rest, lines
}

// writeEntries is the inverse of parseEntries; entries are sorted and distinct.
func writeEntries(w io.Writer, entries []entry) error {
	var b bytes.Buffer
	b.WriteString(snapshotHeader + "\n")
	for _, e := range entries {
		name := quotePath(e.path)
		switch e.kind {
		case isLink:
			fmt.Fprintf(&b, "%s -> %s\n", name, quotePath(e.value))
		case isUnreadable:
			fmt.Fprintf(&b, "%s ! %s\n", name, strings.Join(strings.Fields(cmp.Or(e.value, "unknown")), " "))
		case isDir:
			fmt.Fprintf(&b, "-- %s --\n", quotePath(e.path+"/"))
		case isFile:
			fmt.Fprintf(&b, "-- %s --\n", name)
			for line := range strings.Lines(e.value) {
				bare := strings.TrimSuffix(line, "\n")
				if _, isEntry := parseEntry(bare); isEntry || strings.HasPrefix(bare, `\`) {
					b.WriteByte('\\')
				}
				b.WriteString(line)
			}
			if e.value != "" && !strings.HasSuffix(e.value, "\n") {
				b.WriteString("\n" + noNewline + "\n")
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// resolve follows every link but, when keepLast, one at the end. It returns
// the path without links and its entry, or -1 for a directory that follows
// from others.
func (s *Snapshot) resolve(op, name string, keepLast bool) (string, int, error) {
	at := name
	for range maxLinks {
		i, ok := s.index[at]
		if ok && (i < 0 || s.entries[i].kind != isLink || keepLast) {
			return at, i, nil
		}
		link, rest := at, ""
		if !ok {
			if !fs.ValidPath(at) {
				return "", 0, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
			}
			if link, i = s.linkAbove(at); link == "" {
				return "", 0, s.missing(op, name, at)
			}
			rest = at[len(link):]
		}
		at = follow(link, s.entries[i].value)
		if rest != "" {
			at = path.Join(at, rest)
		}
	}
	return "", 0, &fs.PathError{Op: op, Path: name, Err: syscall.ELOOP}
}

// linkAbove returns the link that at lies below, or "".
func (s *Snapshot) linkAbove(at string) (string, int) {
	for end, c := range at {
		if c != '/' {
			continue
		}
		i, ok := s.index[at[:end]]
		if !ok {
			return "", 0
		}
		if i >= 0 && s.entries[i].kind == isLink {
			return at[:end], i
		}
	}
	return "", 0
}

// missing is the error for a path that is not there: what lies below a
// directory that could not be read has that directory's error.
func (s *Snapshot) missing(op, name, at string) error {
	for dir := parent(at); dir != "."; dir = parent(dir) {
		i, ok := s.index[dir]
		if !ok {
			continue
		}
		if i >= 0 && s.entries[i].kind == isUnreadable {
			return &fs.PathError{Op: op, Path: name, Err: reasonError(s.entries[i].value)}
		}
		if i >= 0 && s.entries[i].kind == isFile {
			return &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
		}
		break
	}
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// reasonError is the inverse of Reason.
func reasonError(reason string) error {
	for errno, name := range errnoNames {
		if name == reason {
			return errno
		}
	}
	if num, ok := strings.CutPrefix(reason, "errno "); ok {
		if n, err := strconv.Atoi(num); err == nil && n > 0 && n < 4096 {
			return syscall.Errno(n)
		}
	}
	return errors.New(reason)
}

// ReadFile implements fs.ReadFileFS.
func (s *Snapshot) ReadFile(name string) ([]byte, error) {
	text, err := s.readText(name)
	if err != nil {
		return nil, err
	}
	return []byte(text), nil
}

func (s *Snapshot) readText(name string) (string, error) {
	_, i, err := s.resolve("open", name, false)
	if err != nil {
		return "", err
	}
	if i < 0 || s.entries[i].kind == isDir {
		return "", &fs.PathError{Op: "read", Path: name, Err: syscall.EISDIR}
	}
	if e := s.entries[i]; e.kind == isUnreadable {
		return "", &fs.PathError{Op: "read", Path: name, Err: reasonError(e.value)}
	}
	return s.entries[i].value, nil
}

// ReadLink implements fs.ReadLinkFS.
func (s *Snapshot) ReadLink(name string) (string, error) {
	_, i, err := s.resolve("readlink", name, true)
	if err != nil {
		return "", err
	}
	if i < 0 || s.entries[i].kind != isLink {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return s.entries[i].value, nil
}

// Lstat implements fs.ReadLinkFS.
func (s *Snapshot) Lstat(name string) (fs.FileInfo, error) { return s.stat("lstat", name, true) }

// Stat implements fs.StatFS.
func (s *Snapshot) Stat(name string) (fs.FileInfo, error) { return s.stat("stat", name, false) }

func (s *Snapshot) stat(op, name string, keepLast bool) (fs.FileInfo, error) {
	_, i, err := s.resolve(op, name, keepLast)
	if err != nil {
		return nil, err
	}
	return s.info(path.Base(name), i), nil
}

func (s *Snapshot) info(base string, i int) snapInfo {
	if i < 0 {
		return snapInfo{name: base, mode: fs.ModeDir | 0o555}
	}
	switch e := s.entries[i]; e.kind {
	case isLink:
		return snapInfo{name: base, mode: fs.ModeSymlink | 0o777, size: int64(len(e.value))}
	case isDir:
		return snapInfo{name: base, mode: fs.ModeDir | 0o555}
	case isUnreadable:
		return snapInfo{name: base}
	default:
		return snapInfo{name: base, mode: 0o444, size: int64(len(e.value))}
	}
}

// ReadDir implements fs.ReadDirFS.
func (s *Snapshot) ReadDir(name string) ([]fs.DirEntry, error) {
	at, i, err := s.resolve("open", name, false)
	if err != nil {
		return nil, err
	}
	if i >= 0 {
		switch e := s.entries[i]; e.kind {
		case isUnreadable:
			return nil, &fs.PathError{Op: "readdir", Path: name, Err: reasonError(e.value)}
		case isFile, isLink:
			return nil, &fs.PathError{Op: "readdir", Path: name, Err: syscall.ENOTDIR}
		}
	}
	prefix := at + "/"
	if at == "." {
		prefix = ""
	}
	var list []fs.DirEntry
	from := s.search(prefix)
	for from < len(s.entries) && strings.HasPrefix(s.entries[from].path, prefix) {
		base, _, below := strings.Cut(s.entries[from].path[len(prefix):], "/")
		list = append(list, snapInfo(s.info(base, s.index[prefix+base])))
		if !below {
			// The entry itself; what lies below it comes later, after names
			// that sort between "x" and "x/".
			from++
			continue
		}
		// Past everything below: '0' is the byte after '/'.
		from = s.search(prefix + base + "0")
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return slices.CompactFunc(list, func(a, b fs.DirEntry) bool { return a.Name() == b.Name() }), nil
}

// search returns the first entry whose path is not before p.
func (s *Snapshot) search(p string) int {
	i, _ := slices.BinarySearchFunc(s.entries, p, func(e entry, p string) int { return strings.Compare(e.path, p) })
	return i
}

// Open implements fs.FS.
func (s *Snapshot) Open(name string) (fs.File, error) {
	at, i, err := s.resolve("open", name, false)
	if err != nil {
		return nil, err
	}
	info := s.info(path.Base(name), i)
	if info.IsDir() {
		list, err := s.ReadDir(at)
		if err != nil {
			return nil, err
		}
		return &snapDir{info: info, list: list}, nil
	}
	e := s.entries[i]
	if e.kind == isUnreadable {
		return nil, &fs.PathError{Op: "open", Path: name, Err: reasonError(e.value)}
	}
	return &snapFile{info: info, Reader: strings.NewReader(e.value)}, nil
}

// snapInfo describes an entry as FileInfo and as DirEntry.
type snapInfo struct {
	name string
	mode fs.FileMode
	size int64
}

func (i snapInfo) Name() string               { return i.name }
func (i snapInfo) Size() int64                { return i.size }
func (i snapInfo) Mode() fs.FileMode          { return i.mode }
func (i snapInfo) Type() fs.FileMode          { return i.mode.Type() }
func (i snapInfo) ModTime() time.Time         { return time.Time{} }
func (i snapInfo) IsDir() bool                { return i.mode.IsDir() }
func (i snapInfo) Sys() any                   { return nil }
func (i snapInfo) Info() (fs.FileInfo, error) { return i, nil }

type snapFile struct {
	info snapInfo
	*strings.Reader
}

func (f *snapFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *snapFile) Close() error               { return nil }

type snapDir struct {
	info snapInfo
	list []fs.DirEntry
}

func (d *snapDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *snapDir) Close() error               { return nil }

func (d *snapDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: syscall.EISDIR}
}

func (d *snapDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		list := d.list
		d.list = nil
		return list, nil
	}
	if len(d.list) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.list))
	list := d.list[:n]
	d.list = d.list[n:]
	return list, nil
}
