package discover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
)

// parseInts reads exactly eight small numbers, one a priority or traffic class.
func parseInts(words []string) ([]int, error) {
	if len(words) != 8 {
		return nil, fmt.Errorf("want 8 numbers, got %d", len(words))
	}
	out := make([]int, 8)
	for i, w := range words {
		v, err := strconv.Atoi(w)
		if err != nil || v < 0 {
			return nil, fmt.Errorf("want a number, got %q", w)
		}
		out[i] = v
	}
	return out, nil
}

func parseSmall(s string, most int) (int, error) {
	v, err := strconv.Atoi(s)
	if err != nil || v < 0 || v > most {
		return 0, fmt.Errorf("want 0 to %d, got %q", most, s)
	}
	return v, nil
}

// parseDCB reads fabrun/dcb/<netdev>.
func parseDCB(text []byte) (*topology.DCB, []string) {
	d := &topology.DCB{DSCPToPriority: map[int]int{}}
	bad := eachLine(text, func(w []string, line string) error {
		var err error
		switch w[0] {
		case "trust":
			if len(w) != 2 || (w[1] != "dscp" && w[1] != "pcp" && w[1] != "-") {
				return fmt.Errorf("trust: want dscp or pcp, got %q", after(line, 1))
			}
			d.Trust = known(w[1])
		case "pfc":
			d.PFC = []int{}
			for _, s := range w[1:] {
				p, err := parseSmall(s, 7)
				if err != nil {
					return fmt.Errorf("pfc: %w", err)
				}
				d.PFC = append(d.PFC, p)
			}
			slices.Sort(d.PFC)
		case "dscp":
			if len(w) != 3 {
				return fmt.Errorf("dscp: want code point and priority")
			}
			dscp, err := parseSmall(w[1], 63)
			if err != nil {
				return fmt.Errorf("dscp: %w", err)
			}
			prio, err := parseSmall(w[2], 7)
			if err != nil {
				return fmt.Errorf("dscp %d: %w", dscp, err)
			}
			d.DSCPToPriority[dscp] = prio
		case "prio-tc":
			d.PrioToTC, err = parseInts(w[1:])
		case "tc-bw":
			d.TCBandwidth, err = parseInts(w[1:])
		case "prio-buffer":
			d.PrioToBuffer, err = parseInts(w[1:])
		case "buffer-size":
			d.BufferBytes, err = parseInts(w[1:])
		case "tc-tsa":
			if len(w) != 9 {
				return fmt.Errorf("tc-tsa: want 8 words, got %d", len(w)-1)
			}
			d.TCAlgorithm = slices.Clone(w[1:])
		case "willing":
			if len(w) != 2 {
				return fmt.Errorf("willing: want on or off")
			}
			d.Willing, err = parseYesNo(w[1])
		case "dcbx":
			d.DCBX = known(strings.Join(w[1:], " "))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w[0], err)
		}
		return nil
	})
	return d, bad
}

// parseEthtool reads fabrun/ethtool/<netdev>.
func parseEthtool(text []byte) (*topology.Ethtool, []string) {
	e := &topology.Ethtool{}
	bad := eachLine(text, func(w []string, line string) error {
		rest := known(after(line, 1))
		switch w[0] {
		case "driver", "version", "firmware", "bus": // for people
		case "pause":
			v, err := parseYesNo(rest)
			if err != nil {
				return fmt.Errorf("pause: %w", err)
			}
			e.GlobalPause = v
		case "stat":
			if len(w) != 3 {
				return fmt.Errorf("stat: want name and value")
			}
			v, err := strconv.ParseInt(w[2], 10, 64)
			if err != nil {
				return fmt.Errorf("stat %s: cannot read %q", w[1], w[2])
			}
			if e.Stats == nil {
				e.Stats = map[string]int64{}
			}
			e.Stats[w[1]] = v
		}
		return nil
	})
	return e, bad
}
