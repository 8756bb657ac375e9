package eyes

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Numbers of rdma/rdma_netlink.h.
const (
	netlinkRDMA       = 20
	nldevClient       = 5
	nldevGet          = 1
	nldevResQPGet     = 10
	nldevAttrDevIndex = 1
	nldevAttrDevName  = 2
	nldevAttrResQP    = 19
	nldevAttrResPid   = 28
)

func nldevType(op uint16) uint16 { return nldevClient<<10 | op }

// queuePairs counts, per RDMA device, the queue pairs that processes hold for
// which ours says so. nil: the kernel does not tell (no RDMA, or before 4.17).
func queuePairs(ours func(pid int) bool) map[string]int {
	devs := map[string]uint32{}
	err := netlinkDump(netlinkRDMA, nldevType(nldevGet), nldevType(nldevGet), nil, func(b []byte) error {
		var name string
		var index uint32
		attributes(b, func(kind uint16, v []byte) {
			switch {
			case kind == nldevAttrDevName:
				name = strings.TrimRight(string(v), "\x00")
			case kind == nldevAttrDevIndex && len(v) >= 4:
				index = binary.NativeEndian.Uint32(v)
			}
		})
		if name != "" && len(devs) < 1024 {
			devs[name] = index
		}
		return nil
	})
	if err != nil || len(devs) == 0 {
		return nil
	}
	out := map[string]int{}
	for name, index := range devs {
		req := make([]byte, 8)
		binary.NativeEndian.PutUint16(req[0:], 8)
		binary.NativeEndian.PutUint16(req[2:], nldevAttrDevIndex)
		binary.NativeEndian.PutUint32(req[4:], index)
		n := 0
		err := netlinkDump(netlinkRDMA, nldevType(nldevResQPGet), nldevType(nldevResQPGet), req, func(b []byte) error {
			for _, pid := range qpPids(b) {
				if ours(pid) {
					n++
				}
			}
			return nil
		})
		if err != nil {
			return nil
		}
		out[name] = n
	}
	return out
}

// qpPids returns the process of each queue pair of a dump's message; the
// kernel's own have none.
func qpPids(b []byte) []int {
	var out []int
	attributes(b, func(kind uint16, table []byte) {
		if kind != nldevAttrResQP {
			return
		}
		attributes(table, func(_ uint16, entry []byte) {
			attributes(entry, func(kind uint16, v []byte) {
				if kind == nldevAttrResPid && len(v) >= 4 {
					out = append(out, int(binary.NativeEndian.Uint32(v)))
				}
			})
		})
	})
	return out
}

// ownerOf says whether a process belongs to user uid.
func ownerOf(proc string, uid int) func(pid int) bool {
	known := map[int]bool{}
	return func(pid int) bool {
		if v, ok := known[pid]; ok {
			return v
		}
		text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
		mine := false
		if err == nil {
			for line := range strings.Lines(string(text)) {
				if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
					f := strings.Fields(rest)
					mine = len(f) > 0 && f[0] == strconv.Itoa(uid)
					break
				}
			}
		}
		known[pid] = mine
		return mine
	}
}
