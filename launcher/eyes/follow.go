package eyes

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"fabrun/launcher"
	"fabrun/launcher/watch"
)

// Following is what of the job's logs is read while it runs.
type Following struct {
	Dir string // private directory of this run: every regular file in it; "" none
	// Patterns are what the user set as NCCL_DEBUG_FILE or UCX_LOG_FILE (%h, %p,
	// … stand for anything). What Census found there is not read.
	Patterns []string
	old      map[string]known
	// Keep leaves what was read in the files of Dir. Otherwise their memory is
	// given back as soon as it has been read (they are usually in /dev/shm).
	Keep bool
}

const (
	maxFollowed   = 65536
	readPerPoll   = 8 << 20  // of one file, so that one loud rank does not hide the others
	punchAtLeast  = 64 << 10 // of each file: a thousand of them hold no more than 64 MB
	fallocatePnch = 0x03     // FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
)

// Follower reads growing log files by looking at their sizes. Looking costs one
// stat a file; inotify would see nothing on the shared file systems that user's
// own patterns often name.
type Follower struct {
	w     *watch.Watcher
	what  Following
	files map[string]*followed
	buf   []byte
	slow  map[string]bool // patterns on shared file systems
	polls int
}

// sharedEvery: listing a directory of a file server is its work, not ours; of so
// many looks one is at the patterns there.
const sharedEvery = 10

type followed struct {
	src     *watch.Source
	offset  int64
	punched int64
	private bool
}

// NewFollower returns a Follower that feeds w.
func NewFollower(w *watch.Watcher, what Following) *Follower {
	f := &Follower{w: w, what: what, files: map[string]*followed{}, buf: make([]byte, 128<<10), slow: map[string]bool{}}
	for _, p := range what.Patterns {
		f.slow[p], _ = launcher.SharedLogs(p)
	}
	return f
}

// Poll reads what is new in all files and returns how many bytes that was.
func (f *Follower) Poll() int64 { return f.poll(false) }

func (f *Follower) poll(all bool) int64 {
	var n int64
	f.polls++
	if f.what.Dir != "" {
		entries, err := os.ReadDir(f.what.Dir)
		if err == nil {
			for _, e := range entries {
				if e.Type().IsRegular() {
					n += f.read(filepath.Join(f.what.Dir, e.Name()), true)
				}
			}
		}
	}
	for _, p := range f.what.Patterns {
		if f.slow[p] && !all && f.polls%sharedEvery != 1 {
			continue
		}
		for _, name := range matches(p) {
			n += f.read(name, false)
		}
	}
	return n
}

// Close reads the unfinished last lines.
func (f *Follower) Close() {
	f.poll(true)
	for _, file := range f.files {
		//nolint:errcheck // never fails
		_ = file.src.Close()
	}
}

// globOf turns a pattern of NCCL (%h host, %p process) or UCX (also %c %t %u %e)
// into one of filepath.Glob.
func globOf(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '%' && i+1 < len(p):
			i++
			if p[i] == '%' {
				b.WriteByte('%')
			} else {
				b.WriteByte('*')
			}
		case strings.IndexByte(`*?[\`, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// read takes what one file has beyond what was read of it.
func (f *Follower) read(name string, private bool) int64 {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || !private && !launcher.OwnFile(info) {
		return 0
	}
	file := f.files[name]
	if file == nil {
		if len(f.files) >= maxFollowed {
			return 0
		}
		file = &followed{private: private}
		if !private {
			file.offset = f.what.startOf(name, info)
			if file.offset > 0 && file.offset == info.Size() {
				return 0 // left over from an earlier job, so far
			}
		}
		file.src = f.w.Source(name)
		f.files[name] = file
	}
	if info.Size() < file.offset {
		file.offset, file.punched = 0, 0 // written anew
	}
	if info.Size() == file.offset {
		return 0
	}
	h, err := os.OpenFile(name, openFlags(private, f.what.Keep), 0)
	if err != nil {
		return 0
	}
	//nolint:errcheck // nothing was written
	defer h.Close()
	var total int64
	for total < readPerPoll {
		n, err := h.ReadAt(f.buf, file.offset)
		file.offset += int64(n)
		total += int64(n)
		//nolint:errcheck // never fails
		_, _ = file.src.Write(f.buf[:n])
		if err != nil || n == 0 {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrClosed) {
				return total
			}
			break
		}
	}
	if private && !f.what.Keep && file.offset-file.punched >= punchAtLeast {
		// Offsets stay what they were, so the writer notices nothing.
		if err := syscall.Fallocate(int(h.Fd()), fallocatePnch, file.punched, file.offset-file.punched); err == nil {
			file.punched = file.offset
		}
	}
	return total
}

func openFlags(private, keep bool) int {
	if private && !keep {
		return os.O_RDWR | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	}
	return os.O_RDONLY | syscall.O_NONBLOCK
}

// LogPlaces says where the job's libraries write what fabrun reads, by the
// variables that its ranks see: into the private directory dir, into files of the
// user's own choice (which may be relative to the ranks' directory cwd), or into
// the job's streams, which then have to be read.
func LogPlaces(set map[string]string, dir, cwd string) (f Following, readStdout, readStderr bool) {
	f.Dir = dir
	place := func(level, file string, loud bool) {
		if !loud || level == "" {
			return
		}
		switch file {
		case "", "stdout", "/dev/stdout":
			// NCCL and UCX both write to standard output by default.
			readStdout = true
		case "stderr", "/dev/stderr":
			readStderr = true
		default:
			file = strings.TrimPrefix(file, "file:")
			if !filepath.IsAbs(file) && cwd != "" {
				file = filepath.Join(cwd, file)
			}
			if filepath.IsAbs(file) && !slices.Contains(f.Patterns, file) && (dir == "" || !strings.HasPrefix(file, dir+"/")) && !strings.HasPrefix(file, "/dev/null") {
				f.Patterns = append(f.Patterns, file)
			}
		}
	}
	nccl := strings.ToUpper(set["NCCL_DEBUG"])
	place(nccl, set["NCCL_DEBUG_FILE"], nccl != "VERSION" && nccl != "NONE")
	ucx := strings.ToLower(set["UCX_LOG_LEVEL"])
	place(ucx, set["UCX_LOG_FILE"], ucx != "fatal" && ucx != "error")
	if set["I_MPI_DEBUG"] != "" && set["I_MPI_DEBUG"] != "0" {
		readStdout = true
	}
	return f, readStdout, readStderr
}
