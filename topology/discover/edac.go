package discover

import (
	"slices"
	"strconv"
	"strings"
)

// memoryChannels counts the populated memory channels of each NUMA node from
// EDAC. A memory controller belongs to a socket (Intel names it in mc_name) or,
// on AMD, to the NUMA node of its number; the channels of a socket are shared
// evenly by its nodes. Where no driver tells, the count stays unknown.
func (r *reader) memoryChannels() {
	const base = "sys/devices/system/edac/mc"
	bySocket := map[int]int{}
	byNode := map[int]int{}
	for _, mc := range r.names(base) {
		num, err := strconv.Atoi(strings.TrimPrefix(mc, "mc"))
		if err != nil || !strings.HasPrefix(mc, "mc") {
			continue
		}
		dir := base + "/" + mc
		channels := map[string]bool{}
		for _, dimm := range r.names(dir) {
			if !strings.HasPrefix(dimm, "dimm") && !strings.HasPrefix(dimm, "rank") {
				continue
			}
			loc, ok := r.text(dir + "/" + dimm + "/dimm_location")
			if !ok {
				continue
			}
			if size, ok := r.text(dir + "/" + dimm + "/size"); ok && size == "0" {
				continue
			}
			if c := channelOf(loc); c != "" {
				channels[c] = true
			}
		}
		if len(channels) == 0 {
			continue
		}
		name, _ := r.text(dir + "/mc_name")
		if socket, ok := socketOf(name); ok {
			bySocket[socket] += len(channels)
		} else if strings.HasPrefix(name, "F") { // "F17h_M30h": amd64_edac
			byNode[num] += len(channels)
		}
	}
	if len(bySocket) == 0 && len(byNode) == 0 {
		return
	}
	r.h.CPU.MemoryChannels = map[int]int{}
	for _, n := range r.h.NUMA {
		if c := byNode[n.ID]; c > 0 {
			r.h.CPU.MemoryChannels[n.ID] = c
			continue
		}
		if n.Package == nil {
			continue
		}
		same := 0
		for _, o := range r.h.NUMA {
			if o.Package != nil && *o.Package == *n.Package {
				same++
			}
		}
		if c := bySocket[*n.Package] / same; c > 0 {
			r.h.CPU.MemoryChannels[n.ID] = c
		}
	}
	if len(r.h.CPU.MemoryChannels) == 0 {
		r.h.CPU.MemoryChannels = nil
	}
}

// channelOf reads dimm_location: "channel 0 slot 1", "csrow 2 channel 3",
// "memory 0 channel 1".
func channelOf(loc string) string {
	f := strings.Fields(loc)
	i := slices.Index(f, "channel")
	if i < 0 || i+1 >= len(f) {
		return ""
	}
	return f[i+1]
}

// socketOf reads mc_name: "Skylake Socket#1 IMC#0", "Intel_10nm Socket#0 IMC#3",
// "Broadwell SrcID#1_Ha#0".
func socketOf(name string) (int, bool) {
	for _, mark := range []string{"Socket#", "SrcID#"} {
		if _, rest, ok := strings.Cut(name, mark); ok {
			end := 0
			for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
				end++
			}
			n, err := strconv.Atoi(rest[:end])
			return n, err == nil
		}
	}
	return 0, false
}
