package hang

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"fabrun/launcher/watch"
)

// Dump is what torch's flight recorder of one rank has written, when its watchdog
// ran out of patience (torch/csrc/distributed/c10d/FlightRecorder.hpp, format 2).
type Dump struct {
	Rank   int         `json:"rank"`
	File   string      `json:"file"`
	Groups []DumpGroup `json:"groups"`
	// Why says what could not be read; then there are no groups.
	Why string `json:"why,omitempty"`
}

// DumpGroup is how far the rank has come in one process group.
type DumpGroup struct {
	Name     string `json:"name"`
	About    string `json:"about,omitempty"` // "default_pg"
	Ranks    []int  `json:"ranks"`           // of the group; empty where it is not told
	Enqueued int64  `json:"enqueued"`        // number of its last collective; 0 none
	Done     int64  `json:"done"`
	Op       string `json:"op,omitempty"` // what is enqueued and not done: "all_reduce"
	OpNumber int64  `json:"op_number,omitempty"`
}

// Bounds of a dump. Torch keeps 2,000 entries where it is not told otherwise, with
// stacks some kB each.
const (
	MaxDump   = 64 << 20
	maxGroups = 64
	maxDumps  = 4096
)

// ParseDump reads a dump: JSON, or the pickle of plain values that torch writes.
// Nothing in a pickle is run: one that holds more than plain values is refused.
func ParseDump(text []byte) ([]DumpGroup, error) {
	var v any
	switch {
	case len(text) == 0:
		return nil, errors.New("the file is empty")
	case text[0] == '{':
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
	default:
		var err error
		if v, err = unpickle(text); err != nil {
			return nil, err
		}
	}
	top, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("no dump of torch's flight recorder")
	}
	_, hasStatus := top["pg_status"]
	_, hasConfig := top["pg_config"]
	if !hasStatus && !hasConfig {
		return nil, errors.New("no dump of torch's flight recorder: no process groups in it")
	}
	groups := map[string]*DumpGroup{}
	group := func(name string) *DumpGroup {
		if groups[name] == nil && len(groups) < maxGroups {
			groups[name] = &DumpGroup{Name: name, Ranks: []int{}}
		}
		return groups[name]
	}
	config, _ := top["pg_config"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(config)) {
		info, _ := config[name].(map[string]any)
		if g := group(name); g != nil {
			g.About, _ = info["desc"].(string)
			if text, ok := info["ranks"].(string); ok { // "[0, 1]"
				for _, w := range strings.Split(strings.Trim(text, "[] "), ",") {
					if n, err := strconv.Atoi(strings.TrimSpace(w)); err == nil && len(g.Ranks) < 1<<16 {
						g.Ranks = append(g.Ranks, n)
					}
				}
			}
		}
	}
	entries, _ := top["entries"].([]any)
	for _, v := range entries {
		e, _ := v.(map[string]any)
		names, _ := e["process_group"].([]any)
		if len(names) == 0 {
			continue
		}
		name, _ := names[0].(string)
		number, known := integer(e["collective_seq_id"])
		if p2p, _ := e["is_p2p"].(bool); p2p || !known {
			continue
		}
		g := group(name)
		if g == nil {
			continue
		}
		if g.About == "" && len(names) > 1 {
			g.About, _ = names[1].(string)
		}
		g.Enqueued = max(g.Enqueued, number)
		if state, _ := e["state"].(string); state == "completed" {
			g.Done = max(g.Done, number)
		} else if g.Op == "" || number < g.OpNumber {
			op, _ := e["profiling_name"].(string)
			g.Op, g.OpNumber = strings.TrimPrefix(op, "nccl:"), number
		}
	}
	// One group: its status needs no number that both parts share.
	status, _ := top["pg_status"].(map[string]any)
	if len(groups) == 1 && len(status) == 1 {
		for _, g := range groups {
			for _, v := range status {
				s, _ := v.(map[string]any)
				if n, ok := integer(s["last_enqueued_collective"]); ok {
					g.Enqueued = max(g.Enqueued, n)
				}
				if n, ok := integer(s["last_completed_collective"]); ok {
					g.Done = max(g.Done, n)
				}
			}
		}
	}
	out := make([]DumpGroup, 0, len(groups))
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, *groups[name])
	}
	return out, nil
}

// integer reads a number of either form: the JSON of torch writes some as text.
func integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case json.Number:
		i, err := n.Int64()
		return i, err == nil
	case string:
		i, err := strconv.ParseInt(n, 10, 64)
		return i, err == nil
	}
	return 0, false
}

// dumpsSettle is after how many looks without a further dump those that are there
// are read: the ranks of a job write theirs within seconds of each other.
const dumpsSettle = 2

// torchSays tells once what the dumps of all ranks say.
func (j *Judge) torchSays() (watch.Event, bool) {
	all := map[int]Dump{}
	at := map[int]string{}
	for _, name := range j.names {
		n := j.hosts[name]
		if len(n.dumps) > 0 && n.fresh < dumpsSettle {
			return watch.Event{}, false
		}
		for r, d := range n.dumps {
			if len(all) < maxDumps {
				all[r], at[r] = d, name
			}
		}
	}
	if len(all) == 0 || len(all) <= j.dumped {
		return watch.Event{}, false
	}
	j.dumped = len(all)
	return dumpsEvent(all, at), true
}

// dumpsEvent compares the ranks of each group.
func dumpsEvent(all map[int]Dump, at map[int]string) watch.Event {
	ranks := slices.Sorted(maps.Keys(all))
	e := watch.Event{ID: EventTorch, Severity: watch.SeverityWarning}
	files := all[ranks[0]].File + " on " + at[ranks[0]]
	if len(ranks) > 1 {
		files += fmt.Sprintf(" and %d more", len(ranks)-1)
	}
	e.Text = "torch has written what its flight recorder knows (" + files + ")"
	// by is the state of each rank in each group.
	by := map[string]map[int]DumpGroup{}
	unread := ""
	for _, r := range ranks {
		if all[r].Why != "" && unread == "" {
			unread = fmt.Sprintf("that of rank %d was not read: %s", r, all[r].Why)
		}
		for _, g := range all[r].Groups {
			if by[g.Name] == nil {
				by[g.Name] = map[int]DumpGroup{}
			}
			by[g.Name][r] = g
		}
	}
	var said []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if s, rank := groupSays(name, by[name]); s != "" {
			if said = append(said, s); e.Rank == nil && rank >= 0 {
				e.Rank, e.Host = &rank, at[rank]
			}
		}
	}
	switch {
	case len(said) > 0:
		e.Text += ": " + strings.Join(said[:min(len(said), 3)], "; ")
	case len(by) > 0:
		e.Text += ": all of these ranks have come equally far in every process group, so the operation itself does not end (network, or a GPU)"
	}
	if unread != "" {
		e.Text += "; " + unread
	}
	e.Text += "."
	return e
}

// groupSays says which ranks of a group are behind, or in another operation; ""
// where they agree. rank is one of them, -1 none.
func groupSays(name string, by map[int]DumpGroup) (text string, rank int) {
	ranks := slices.Sorted(maps.Keys(by))
	ahead := ranks[0]
	for _, r := range ranks {
		if by[r].Enqueued > by[ahead].Enqueued {
			ahead = r
		}
	}
	most := by[ahead]
	about := most.About
	if about == "" {
		about = "process group " + name
	}
	var behind []int
	var missing []int
	for _, r := range ranks {
		if by[r].Enqueued < most.Enqueued {
			behind = append(behind, r)
		}
	}
	for _, r := range most.Ranks {
		if _, ok := by[r]; !ok {
			missing = append(missing, r)
		}
	}
	op := cmp.Or(most.Op, "collective")
	switch {
	case len(behind) > 0:
		r := behind[0]
		number := by[r].Enqueued + 1
		if most.OpNumber != number {
			op = "collective"
		}
		return fmt.Sprintf("rank %s of %s is behind: it has not come to %s %d, and the others have", watch.Ranges(behind), about, op, number), r
	case len(missing) > 0:
		return fmt.Sprintf("of rank %s of %s there is no dump, and the others are in %s %d", watch.Ranges(missing), about, op, most.OpNumber), -1
	}
	for _, r := range ranks {
		if g := by[r]; g.Op != "" && most.Op != "" && g.OpNumber == most.OpNumber && g.Op != most.Op {
			return fmt.Sprintf("in %s rank %d is in %s %d where rank %d is in %s", about, r, g.Op, g.OpNumber, ahead, most.Op), r
		}
	}
	return "", -1
}
