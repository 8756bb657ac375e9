package eyes

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What the user set as NCCL_DEBUG_FILE or UCX_LOG_FILE is read where it goes, and
// is the user's: nothing of it is changed or removed, and what was there before
// the job is not read.

// ForHost is the pattern with the host's name in it, as NCCL (up to the first
// dot) and UCX write it.
func ForHost(pattern, host string) string {
	short, _, _ := strings.Cut(host, ".")
	return strings.ReplaceAll(pattern, "%h", strings.ReplaceAll(short, "%", "%%"))
}

// fingerprint is how a file begins: one that was written anew begins otherwise,
// since each line of NCCL and UCX names its process or the time.
const fingerprint = 256

// known is a file of the user's that was there before the job.
type known struct {
	size  int64
	time  time.Time // of the last change
	begin []byte
}

// Census notes which files of the patterns are there before the job starts, so
// that only what comes later is read. It goes by the files themselves: the clock
// of a file server is not ours.
func (f *Following) Census() {
	f.old = map[string]known{}
	for _, p := range f.Patterns {
		for _, name := range matches(p) {
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && len(f.old) < maxFollowed {
				f.old[name] = known{info.Size(), info.ModTime(), beginning(name)}
			}
		}
	}
}

// matches returns the files of a pattern.
func matches(pattern string) []string {
	names, err := filepath.Glob(globOf(pattern))
	if err != nil {
		return nil // a pattern that nothing can match
	}
	return names[:min(len(names), maxFollowed)]
}

func beginning(name string) []byte {
	h, err := os.OpenFile(name, openFlags(false, true), 0)
	if err != nil {
		return nil
	}
	//nolint:errcheck // nothing was written
	defer h.Close()
	b := make([]byte, fingerprint)
	n, err := h.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil
	}
	return b[:n]
}

// startOf is where the reading of a file begins that is seen for the first time.
func (f *Following) startOf(name string, info os.FileInfo) int64 {
	was, ok := f.old[name]
	if !ok {
		return 0
	}
	if info.Size() == was.size && info.ModTime().Equal(was.time) {
		return was.size
	}
	now := beginning(name)
	if len(was.begin) == 0 || len(now) < len(was.begin) || !bytes.Equal(now[:len(was.begin)], was.begin) {
		return 0 // written anew
	}
	return was.size
}
