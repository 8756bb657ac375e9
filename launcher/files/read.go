package files

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// MaxRead bounds a file that somebody else wrote.
const MaxRead = 16 << 20

// Read reads a file of at most MaxRead bytes.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	//nolint:errcheck // opened for reading
	defer f.Close()
	text, err := ReadAll(f, MaxRead)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", path, err)
	}
	return []byte(text), nil
}

// ReadAll reads r and refuses what is larger than limit.
func ReadAll(r io.Reader, limit int64) (string, error) {
	var b strings.Builder
	if f, ok := r.(*os.File); ok {
		// The size spares growing; it is a hint only (pipes and sysfs have none).
		if st, err := f.Stat(); err == nil {
			b.Grow(int(min(st.Size(), limit)))
		}
	}
	if _, err := io.Copy(&b, io.LimitReader(r, limit+1)); err != nil {
		return "", err
	}
	if int64(b.Len()) > limit {
		return "", fmt.Errorf("larger than %d MiB", limit>>20)
	}
	return b.String(), nil
}
