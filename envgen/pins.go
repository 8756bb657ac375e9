package envgen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology/finding"
)

// takesPort says whether a value of NCCL_IB_HCA or UCX_NET_DEVICES lets a
// port through; known is false for a value that a shell has yet to fill in.
func takesPort(name, value string, p *port) (takes, known bool) {
	switch {
	case variable(value):
		return false, false
	case name == "UCX_NET_DEVICES":
		return ucxTakes(value, p.name()), true
	}
	return parseFilter(value).takes(p.hca.Name, p.p.Number), true
}

// ucxTakes reads UCX_NET_DEVICES: "all", a list of exact names with ports, "^"
// before it for all others (1.11 on), and ranges "mlx5_[0-3]:1" (1.22 on).
func ucxTakes(value, port string) bool {
	list, not := strings.CutPrefix(value, "^")
	if list == "all" || list == "" {
		return !not
	}
	for item := range strings.SplitSeq(list, ",") {
		if item == port || inRange(item, port) {
			return !not
		}
	}
	return not
}

func inRange(item, name string) bool {
	before, rest, ok := strings.Cut(item, "[")
	span, after, ok2 := strings.Cut(rest, "]")
	if !ok || !ok2 || !strings.HasPrefix(name, before) || !strings.HasSuffix(name, after) || len(name) < len(before)+len(after) {
		return false
	}
	n, err := strconv.Atoi(name[len(before) : len(name)-len(after)])
	lo, hi, two := strings.Cut(span, "-")
	if !two {
		hi = lo
	}
	a, errA := strconv.Atoi(lo)
	b, errB := strconv.Atoi(hi)
	return err == nil && errA == nil && errB == nil && a <= n && n <= b
}

// leftOut says whether a port was left out for the sake of others, and would work.
func (p *port) leftOut() bool {
	switch p.rejectID {
	case "hca.role", "hca.beside-gpu", "hca.fabric", "hca.virtual", "hca.network", "hca.excluded":
		return true
	}
	return false
}

// pin is what somebody's list of devices leaves of a node's ports.
type pin struct {
	set   Var
	taken []*port // of the plan's ports
	also  []*port // of others that would work
}

// pinOf is the pin in force on a node for the library by which the job talks;
// nil none.
func (s *state) pinOf(n *node, vars []Var) *pin {
	name := "UCX_NET_DEVICES"
	if s.usesNCCL() {
		name = "NCCL_IB_HCA"
	}
	i := indexVar(vars, name)
	if i < 0 || vars[i].Origin == FromPlan {
		return nil
	}
	out := &pin{set: vars[i]}
	for _, p := range n.ports {
		takes, known := takesPort(name, vars[i].Value, p)
		switch {
		case !known:
			return nil
		case takes && p.rejectID == "":
			out.taken = append(out.taken, p)
		case takes && p.leftOut():
			out.also = append(out.also, p)
		}
	}
	return out
}

// railsLeft is the number of rails that somebody's lists of devices leave, and
// what is to be said of it; all of them and nothing where nobody pinned any. others:
// the lists take ports that are in no rail.
func (s *state) railsLeft(hosts []HostEnv) (left int, others bool, why string) {
	gone := make([]bool, len(s.rails))
	var also []string
	for i, n := range s.nodes {
		pin := s.pinOf(n, hosts[i].Vars)
		if pin == nil || len(n.use) == 0 {
			continue
		}
		for r := range s.rails {
			name, ok := s.rails[r].Ports[n.h.Name]
			if ok && !slices.ContainsFunc(pin.taken, func(p *port) bool { return p.name() == name }) {
				gone[r], why = true, pin.set.Name+"="+pin.set.Value
				s.rails[r].Out = why
			}
		}
		for _, p := range pin.also {
			if !slices.Contains(also, p.name()) {
				also, why = append(also, p.name()), pin.set.Name+"="+pin.set.Value
			}
		}
	}
	for _, g := range gone {
		if !g {
			left++
		}
	}
	switch {
	case len(also) > 0 && left == 0:
		why += " takes " + strings.Join(also, ", ") + " instead"
	case len(also) > 0:
		why += " takes " + strings.Join(also, ", ") + " too"
	}
	return left, len(also) > 0, why
}

// judgeNarrow says what a list of devices takes away.
func judgeNarrow(j *judging, set Setting) {
	if set.Name != "NCCL_IB_HCA" && set.Name != "UCX_NET_DEVICES" || set.Value == "" {
		return
	}
	for _, n := range j.nodesOf(set) {
		ports := n.verbsPorts(set.Name == "NCCL_IB_HCA")
		var taken []string
		for _, p := range ports {
			takes, known := takesPort(set.Name, set.Value, p)
			if !known {
				return
			}
			if takes {
				taken = append(taken, p.name())
			}
		}
		if len(taken) == 0 || len(taken) == len(ports) {
			continue // nothing at all is said by its own name
		}
		j.say("hca.narrowed", finding.Warning, n.h.Name, set, finding.Finding{
			Seen:   fmt.Sprintf("takes %d of the %d ports of this host: %s", len(taken), len(ports), strings.Join(taken, ", ")),
			Wanted: strings.Join(portNames(ports), ","), Why: "the job gets the bandwidth of these alone",
			Hint: "unset it, where that was not meant",
		})
	}
}
