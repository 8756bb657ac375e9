package eyes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// With --record the libraries' private logs are kept beside the record, in a
// directory of its name with ".logs" behind it: one file a process, those of other
// nodes under the node's name.
const (
	maxKeptOfNode = 256 << 20 // bytes
	keptChunk     = 1 << 20
)

// keptLogs takes the logs of all nodes. It makes its directory with the first.
type keptLogs struct {
	dir string

	mu   sync.Mutex
	root *os.Root
	size map[string]int64 // of each node, "" is this one
	made map[string]bool  // files of this job
	err  error
}

func newKeptLogs(record string) *keptLogs {
	return &keptLogs{dir: record + ".logs", size: map[string]int64{}, made: map[string]bool{}}
}

// add appends to the log of a node. What the node calls it is only a name: no part
// of it leaves the directory.
func (k *keptLogs) add(node, name string, text []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil || k.size[node]+int64(len(text)) > maxKeptOfNode || !isLogName(name) {
		return
	}
	k.size[node] += int64(len(text))
	k.err = k.write(node, name, text)
}

func isLogName(name string) bool {
	return name == filepath.Base(name) && strings.HasSuffix(name, ".log") && len(name) < 200 && !strings.HasPrefix(name, ".")
}

func (k *keptLogs) write(node, name string, text []byte) error {
	if k.root == nil {
		if err := os.Mkdir(k.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		root, err := os.OpenRoot(k.dir)
		if err != nil {
			return err
		}
		k.root = root
	}
	if node != "" {
		sub := "node-" + strings.Map(func(r rune) rune {
			if r == '/' || r < ' ' {
				return '_'
			}
			return r
		}, node)
		if err := k.root.Mkdir(sub, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		name = sub + "/" + name
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if !k.made[name] {
		flags |= os.O_TRUNC // of an earlier job that was recorded under this name
	}
	f, err := k.root.OpenFile(name, flags, 0o600)
	if err != nil {
		return err
	}
	k.made[name] = true
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// close returns the first failure, and where the logs are, "" where there were none.
func (k *keptLogs) close() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.root == nil {
		return "", k.err
	}
	if k.err == nil && len(k.made) == 0 {
		return "", k.root.Close()
	}
	if err := k.root.Close(); k.err == nil {
		k.err = err
	}
	if k.err != nil {
		return "", fmt.Errorf("keeping the logs: %w", k.err)
	}
	return k.dir, nil
}

// eachLog reads the private logs of a run directory in pieces.
func eachLog(dir string, piece func(name string, text []byte)) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	buf := make([]byte, keptChunk)
	var errs []error
	for _, e := range entries {
		if !e.Type().IsRegular() || !isLogName(e.Name()) {
			continue
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for {
			n, err := f.Read(buf)
			if n > 0 {
				piece(e.Name(), buf[:n])
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					errs = append(errs, err)
				}
				break
			}
		}
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
