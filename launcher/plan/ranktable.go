package plan

import (
	"encoding/json"
	"fmt"
	"strings"
)

// TableName is the variable that carries the RankTable to every rank.
const TableName = "FABRUN_RANK"

// AsName is the variable with the name under which torchrun finds fabrun rank:
// the script's.
const AsName = "FABRUN_RANK_AS"

// RankTable is what fabrun rank must know to act without looking at the
// machine again: the variables that differ per node or rank, and where the
// ranks' memory and devices are.
type RankTable struct {
	// Hosts maps a host's name to its class; nil: every host is of class 0.
	Hosts   map[string]int `json:"hosts,omitempty"`
	Classes []RankClass    `json:"classes"`
	// Prefixes are the prefixes under which every variable is repeated, for a
	// container runtime that drops the environment: "APPTAINERENV_".
	Prefixes []string `json:"twins,omitempty"`
	Bind     bool     `json:"bind,omitempty"`  // bind ranks whose mask is wide
	Vars     []string `json:"vars,omitempty"`  // NAME=VALUE for every host, where the launcher does not forward
	Dir      string   `json:"dir,omitempty"`   // private directory that must exist on the rank's node
	Local    int      `json:"local,omitempty"` // ranks per node where the launcher does not say; 0 unknown
}

// RankClass is what hosts that are alike have in common.
type RankClass struct {
	Vars  []string   `json:"vars,omitempty"` // NAME=VALUE
	Slots []RankSlot `json:"slots,omitempty"`
	// GPUs are the host's GPUs in their order; empty where ranks use none.
	GPUs []RankGPU `json:"gpus,omitempty"`
}

// RankSlot is one NUMA node with CPUs.
type RankSlot struct {
	Node int    `json:"node"` // NUMA node number
	CPUs string `json:"cpus"` // "0-15,64-79"
	// Near holds, by variable, the devices at the smallest distance: they are
	// spread over the ranks of the slot.
	Near map[string][]string `json:"near,omitempty"`
}

// RankGPU is one GPU, and the variables of a rank that uses it.
type RankGPU struct {
	Slot int      `json:"slot"` // index of its NUMA node in Slots; -1 unknown
	Vars []string `json:"vars,omitempty"`
}

// maxTable bounds the encoded table: the kernel allows 128 KiB for one string
// of the environment, its name included (MAX_ARG_STRLEN).
const maxTable = 120 << 10

// Encode returns the table as text for TableName.
func (t RankTable) Encode() (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("encoding what differs per node: %w", err)
	}
	if len(text) > maxTable {
		return "", fmt.Errorf("what differs per node takes %d bytes, and one variable holds %d", len(text), maxTable)
	}
	return string(text), nil
}

// DecodeRankTable reads what Encode wrote.
func DecodeRankTable(text string) (RankTable, error) {
	var t RankTable
	if len(text) > maxTable {
		return t, fmt.Errorf("%s is longer than %d bytes", TableName, maxTable)
	}
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return t, fmt.Errorf("reading %s: %w", TableName, err)
	}
	for name, class := range t.Hosts {
		if class < 0 || class >= len(t.Classes) {
			return t, fmt.Errorf("reading %s: host %q is of class %d of %d", TableName, name, class, len(t.Classes))
		}
	}
	return t, nil
}

// Class returns what holds on the host that is known by these names (its host
// name, and what the launcher calls it), nil where the table does not know it.
func (t RankTable) Class(names ...string) *RankClass {
	if len(t.Hosts) == 0 {
		if len(t.Classes) == 1 {
			return &t.Classes[0]
		}
		return nil
	}
	for _, name := range names {
		if class, ok := t.Hosts[name]; ok && name != "" {
			return &t.Classes[class]
		}
	}
	// A name with its domain and the same name without are one host.
	for _, name := range names {
		short, _, _ := strings.Cut(name, ".")
		for known, class := range t.Hosts {
			if s, _, _ := strings.Cut(known, "."); s == short && short != "" {
				return &t.Classes[class]
			}
		}
	}
	return nil
}
