package eyes

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fabrun/launcher/hang"
)

// dumpReader waits for what torch's flight recorder writes when its watchdog runs
// out of patience: one file a rank.
type dumpReader struct {
	since time.Time             // older files are another job's
	seen  map[string]dumpStands // by name
}

// dumpStands is how a file stood when it was last looked at.
type dumpStands struct {
	size int64
	at   time.Time
	read bool
}

func newDumpReader(since time.Time) dumpReader {
	return dumpReader{since: since, seen: map[string]dumpStands{}}
}

// dumpPlaces are the beginnings of the files' names, to which torch puts the rank:
// what the user set, else its defaults, of each release another
// (torch/csrc/distributed/c10d/FlightRecorder.cpp, getWriter).
func dumpPlaces(env []string) []string {
	set := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		set[name] = value
	}
	for _, name := range []string{"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"} {
		if set[name] != "" {
			return []string{set[name]}
		}
	}
	out := []string{"/tmp/nccl_trace_rank_"}
	cache := set["XDG_CACHE_HOME"]
	if cache == "" && set["HOME"] != "" {
		cache = filepath.Join(set["HOME"], ".cache")
	}
	if cache != "" {
		out = append(out, filepath.Join(cache, "torch", "comm_lib_trace_rank_"), filepath.Join(cache, "torch", "nccl_trace_rank_"))
	}
	return out
}

// look returns the dumps that have been written whole since the look before.
func (d *dumpReader) look(roots []root) []hang.Dump {
	var out []hang.Dump
	for _, o := range roots {
		if o.rank == nil {
			continue
		}
		for _, place := range dumpPlaces(o.env) {
			if !filepath.IsAbs(place) {
				dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(o.pid), "cwd"))
				if err != nil {
					continue
				}
				place = dir + "/" + place
			}
			name := place + strconv.Itoa(*o.rank)
			info, err := os.Stat(name)
			if err != nil || !info.Mode().IsRegular() || info.ModTime().Before(d.since) {
				continue
			}
			was := d.seen[name]
			now := dumpStands{info.Size(), info.ModTime(), was.read}
			d.seen[name] = now
			if was.read || was.size != now.size || !was.at.Equal(now.at) || now.size == 0 {
				continue // known, or still being written
			}
			now.read = true
			d.seen[name] = now
			out = append(out, readDump(*o.rank, name, info.Size()))
		}
	}
	return out
}

func readDump(rank int, name string, size int64) hang.Dump {
	d := hang.Dump{Rank: rank, File: name, Groups: []hang.DumpGroup{}}
	if size > hang.MaxDump {
		d.Why = "it is too large"
		return d
	}
	text, err := os.ReadFile(name)
	if err == nil {
		d.Groups, err = hang.ParseDump(text)
	}
	if err != nil {
		var e *os.PathError
		if errors.As(err, &e) {
			err = e.Err
		}
		d.Groups, d.Why = []hang.DumpGroup{}, err.Error()
	}
	return d
}
