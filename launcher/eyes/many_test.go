package eyes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"fabrun/launcher/watch"
	"fabrun/testdata/bench/lines"
)

// TestThousandRanksLogs: the private logs of a thousand ranks are read with a
// handful of open files and little memory, and take hardly any room when they
// have been read.
func TestThousandRanksLogs(t *testing.T) {
	const ranks = 1000
	dir := t.TempDir()
	w := watch.New(watch.Options{})
	f := NewFollower(w, Following{Dir: dir})
	write := func(r int, text []byte) {
		t.Helper()
		h, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("nccl.n%d.%d.log", r/8, r)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var more bytes.Buffer
	lines.NCCL(&more, 7)
	noise := more.Bytes()[:96<<10]
	noise = noise[:bytes.LastIndexByte(noise, '\n')+1]
	before := openFiles(t)
	for r := range ranks {
		host := fmt.Sprintf("n%d:%d:%d [%d] NCCL INFO ", r/8, 1000+r, 1000+r, r%8)
		write(r, []byte(host+"NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"+host+"Using network IB\n"+
			fmt.Sprintf("%scomm 0x%x rank %d nRanks %d nNodes %d localRanks 8 localRank %d MNNVL 0\n", host, r, r, ranks, ranks/8, r%8)))
	}
	f.Poll()
	if n := openFiles(t); n > before {
		t.Errorf("%d files open, %d before", n, before)
	}
	var was, is runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&was)
	for r := range ranks {
		write(r, noise)
	}
	f.Poll()
	runtime.GC()
	runtime.ReadMemStats(&is)
	if grown := int64(is.HeapAlloc) - int64(was.HeapAlloc); grown > 8<<20 {
		t.Errorf("reading %d MB more keeps %d MB", ranks*len(noise)>>20, grown>>20)
	}
	f.Close()
	v := w.Verdict()
	if v.RanksSeen == nil || *v.RanksSeen != ranks || v.NNodes == nil || *v.NNodes != ranks/8 || v.Fallback == nil || *v.Fallback {
		t.Errorf("verdict of a healthy job of %d ranks: %+v", ranks, v.Sentence)
	}
	if len(v.Events) > 8 {
		t.Errorf("%d events for a healthy job", len(v.Events))
	}
	var room int64
	for r := range ranks {
		room += blocks(t, filepath.Join(dir, fmt.Sprintf("nccl.n%d.%d.log", r/8, r))) * 512
	}
	if all := int64(ranks * len(noise)); room > all/2 {
		t.Skipf("this file system keeps holes: %d of %d MB", room>>20, all>>20)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	return len(fds)
}
