package topology

import "slices"

// FullMember is the bit of a partition key that makes its port a full member;
// limited members talk to full ones only (InfiniBand specification, 10.9.1).
const FullMember = 0x8000

// FullKeys are the partitions of which a port is a full member, without the
// bit, in the order of its table.
func (p Port) FullKeys() []uint16 {
	var out []uint16
	for _, k := range p.PKeys {
		if k&FullMember != 0 && !slices.Contains(out, k&^FullMember) {
			out = append(out, k&^FullMember)
		}
	}
	return out
}

// SharePartition says whether two ports are in one partition in which they can
// talk; known is false where a table was not seen.
func SharePartition(a, b Port) (share, known bool) {
	if len(a.PKeys) == 0 || len(b.PKeys) == 0 {
		return false, false
	}
	for _, x := range a.PKeys {
		for _, y := range b.PKeys {
			if base := x &^ FullMember; base != 0 && base == y&^FullMember && (x|y)&FullMember != 0 {
				return true, true
			}
		}
	}
	return false, true
}
