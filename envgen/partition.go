package envgen

import (
	"fmt"
	"slices"
	"strconv"

	"fabrun/topology"
)

// partition is the InfiniBand partition of the job: the first one of which
// every port of the job with a known table is a full member. ok is false where
// there is none, or no table is known.
func (s *state) partition() (key uint16, ok bool) {
	var common []uint16
	for i, p := range s.ibPorts() {
		full := p.p.FullKeys()
		if i == 0 {
			common = full
		}
		common = slices.DeleteFunc(common, func(k uint16) bool { return !slices.Contains(full, k) })
	}
	if len(common) == 0 {
		return 0, false
	}
	// Who has the job's partition at the front of all tables needs nothing said.
	for _, k := range common {
		if !slices.ContainsFunc(s.ibPorts(), func(p *port) bool { return p.p.PKeys[0] != k|topology.FullMember }) {
			return k, true
		}
	}
	return common[0], true
}

// ibPorts are the chosen InfiniBand ports of all hosts whose partitions are known.
func (s *state) ibPorts() []*port {
	var out []*port
	for _, n := range s.usedNodes() {
		out = append(out, n.ibPorts()...)
	}
	return out
}

func (n *node) ibPorts() []*port {
	return slices.DeleteFunc(n.verbsPorts(false), func(p *port) bool { return !p.infiniband() || len(p.p.PKeys) == 0 })
}

func keyEvidence(ps []*port, index int) []string {
	var out []string
	for _, p := range ps {
		out = append(out, fmt.Sprintf("%s: %#04x", p.file("pkeys/"+strconv.Itoa(index)), p.p.PKeys[index]))
	}
	return out
}

// ncclPKey says which entry of the partition table NCCL takes: it takes the first
// unless told otherwise (NVIDIA/nccl issue 1323), which is a limited member's on
// fabrics where the manager keeps the default partition so, and whose limited
// members cannot talk to each other.
func ncclPKey(s *state, n *node) []Var {
	ps := n.ibPorts()
	key, ok := s.partition()
	if !s.usesNCCL() || len(ps) == 0 || !ok || atLeast(n.v.NCCL, "2.8") == no {
		return nil
	}
	index := slices.Index(ps[0].p.PKeys, key|topology.FullMember)
	for _, p := range ps {
		if slices.Index(p.p.PKeys, key|topology.FullMember) != index {
			return nil // one number for all ports: none is right, and ib.pkey says what is there
		}
	}
	if index == 0 {
		n.leave(Var{Name: "NCCL_IB_PKEY", Why: fmt.Sprintf("the first entry of every port's table is a full member of partition %#04x, and NCCL takes the first", key), Evidence: keyEvidence(ps, 0)})
		return nil
	}
	return []Var{{
		Name: "NCCL_IB_PKEY", Value: strconv.Itoa(index), Evidence: keyEvidence(ps, index),
		Why:      fmt.Sprintf("the entry of the table with full membership of partition %#04x, the job's; NCCL takes the first entry", key),
		Rejected: []Alternative{{Value: "0", Why: fmt.Sprintf("the default: key %#04x", ps[0].p.PKeys[0])}},
		IfWrong:  "connections time out: limited members of a partition cannot talk to each other, nor ports of different partitions",
	}}
}

// ucxPKey names the partition to UCX where its own choice, the first of which a
// port is a full member (uct_ib_iface.c), is not the one that all ports share.
func ucxPKey(s *state, n *node) []Var {
	ps := n.ibPorts()
	key, ok := s.partition()
	if len(ps) == 0 || !ok || s.choseUCXTCP(n) || !slices.ContainsFunc(s.ibPorts(), func(p *port) bool { return p.p.FullKeys()[0] != key }) {
		return nil
	}
	index := slices.Index(ps[0].p.PKeys, key|topology.FullMember)
	return []Var{{
		Name: "UCX_IB_PKEY", Value: fmt.Sprintf("%#04x", key), Evidence: []string{fmt.Sprintf("%s: %#04x", ps[0].file("pkeys/"+strconv.Itoa(index)), ps[0].p.PKeys[index])},
		Why:     "the one partition of which all ports of the job are full members; UCX takes each port's first",
		IfWrong: "ranks in different partitions cannot reach each other",
	}}
}
