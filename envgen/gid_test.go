package envgen

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/topology"
)

// rawGID is a GID as the kernel shows it, for the oracle, which must not share
// code with what it tests.
type rawGID struct {
	bytes [16]byte
	v2    bool
}

func rawTable(p topology.Port) []rawGID {
	out := make([]rawGID, 0)
	for _, g := range p.GIDs {
		for len(out) <= g.Index {
			out = append(out, rawGID{})
		}
		out[g.Index] = rawGID{g.Addr.As16(), strings.HasSuffix(g.Type, "v2")}
	}
	for range p.GIDZero {
		out = append(out, rawGID{})
	}
	return out
}

func (g rawGID) mapped() bool {
	for i := range 10 {
		if g.bytes[i] != 0 {
			return false
		}
	}
	return g.bytes[10] == 0xff && g.bytes[11] == 0xff
}

func (g rawGID) valid() bool {
	zero := g.bytes == [16]byte{}
	return !zero && !(g.bytes[0] == 0xfe && g.bytes[1] == 0x80)
}

func (g rawGID) within(p netip.Prefix) bool {
	if !p.IsValid() {
		return true
	}
	bytes, bits := g.bytes[:], p.Bits()
	want := p.Addr().AsSlice()
	if len(want) == 4 {
		if !g.mapped() {
			return false
		}
		bytes = g.bytes[12:]
	}
	for i := range bits {
		if (bytes[i/8]^want[i/8])&(0x80>>(i%8)) != 0 {
			return false
		}
	}
	return true
}

// oracle is what NCCL itself does with a table: the three rules of
// ncclUpdateGidIndex from 2.21 on, index 0 before.
func oracle(table []rawGID, version string, vars map[string]string) int {
	if v, ok := vars["NCCL_IB_GID_INDEX"]; ok {
		n, err := strconv.Atoi(v)
		if err != nil {
			panic(err)
		}
		return n
	}
	if atLeast(version, "2.21") != yes {
		return 0
	}
	want4 := vars["NCCL_IB_ADDR_FAMILY"] != "AF_INET6"
	wantV2 := vars["NCCL_IB_ROCE_VERSION_NUM"] != "1"
	var within netip.Prefix
	if r := vars["NCCL_IB_ADDR_RANGE"]; r != "" {
		within = netip.MustParsePrefix(r)
	}
	cur := 0
	for i := 1; i < len(table); i++ {
		in := table[i].within(within)
		if table[i].mapped() != table[cur].mapped() && table[i].mapped() == want4 && in {
			cur = i
		} else if table[i].mapped() == want4 && table[i].valid() && in {
			// an empty entry has no version
			same := table[cur].bytes != [16]byte{} && table[cur].v2 == table[i].v2
			if (!same || !table[cur].valid()) && table[i].v2 == wantV2 {
				cur = i
			}
		}
	}
	return cur
}

func TestNCCLChoiceAsTold(t *testing.T) {
	ll, v4, v6 := "fe80::1", "::ffff:10.0.0.1", "fd00::1"
	for _, tt := range []struct {
		name   string
		gids   []string // "address v1|v2", by index; "" empty
		v6     bool
		within string
		want   int
	}{
		{"the classic table", []string{ll + " v1", ll + " v2", v4 + " v1", v4 + " v2"}, false, "", 3},
		{"rxe", []string{ll + " v2", v4 + " v2", v6 + " v2"}, false, "", 1},
		{"IPv6 only, by default: the trap", []string{ll + " v1", ll + " v2", v6 + " v1", v6 + " v2"}, false, "", 0},
		{"IPv6 only, said", []string{ll + " v1", ll + " v2", v6 + " v1", v6 + " v2"}, true, "", 3},
		{"IPv4 of RoCE v1 only: the other trap", []string{ll + " v1", v4 + " v1"}, false, "", 1},
		{"two link-local first", []string{ll + " v1", ll + " v2", "fe80::2 v1", "fe80::2 v2", v4 + " v1", v4 + " v2"}, false, "", 5},
		{"two subnets, first wins", []string{v4 + " v2", "::ffff:192.168.0.1 v2"}, false, "", 0},
		{"two subnets, range", []string{ll + " v2", v4 + " v2", "::ffff:192.168.0.1 v2"}, false, "192.168.0.0/16", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p topology.Port
			for i, text := range tt.gids {
				a, version, _ := strings.Cut(text, " ")
				g := topology.GID{Index: i, Addr: netip.MustParseAddr(a), Type: map[string]string{"v1": roceV1, "v2": roceV2}[version]}
				g.Kind = kindOf(g.Addr)
				p.GIDs = append(p.GIDs, g)
			}
			within := netip.Prefix{}
			if tt.within != "" {
				within = netip.MustParsePrefix(tt.within)
			}
			if got := ncclChoice(&p, tt.v6, within, 2); got != tt.want {
				t.Errorf("model: %d, want %d", got, tt.want)
			}
			vars := map[string]string{"NCCL_IB_ADDR_RANGE": tt.within}
			if tt.v6 {
				vars["NCCL_IB_ADDR_FAMILY"] = "AF_INET6"
			}
			if got := oracle(rawTable(p), "2.27", vars); got != tt.want {
				t.Errorf("oracle: %d, want %d", got, tt.want)
			}
		})
	}
}

func kindOf(a netip.Addr) topology.GIDKind {
	switch {
	case a.Is4In6():
		return topology.GIDIPv4
	case a.IsLinkLocalUnicast():
		return topology.GIDLinkLocal
	}
	return topology.GIDIPv6
}

// randomPort is a RoCE port with a random GID table: addresses of several
// kinds on its own netdev and on others, versions in any order, gaps.
func randomPort(r *rand.Rand, dev string, host, port int) (topology.Port, topology.Netdev) {
	p := topology.Port{Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "Ethernet", RateGbps: ptr(100.0), RateTrusted: true, ActiveMTU: ptr(4096), Netdev: dev}
	d := topology.Netdev{Name: dev, OperState: "up", Kind: "physical"}
	ll := netip.MustParseAddr(fmt.Sprintf("fe80::%x:%x", host+1, port+1))
	addrs := []netip.Addr{}
	if r.IntN(8) > 0 {
		addrs = append(addrs, ll)
	}
	if r.IntN(6) == 0 {
		addrs = append(addrs, netip.MustParseAddr(fmt.Sprintf("fe80::dead:%x", port)))
	}
	choices := []string{
		fmt.Sprintf("::ffff:10.10.%d.%d", port, host+1), fmt.Sprintf("::ffff:192.168.7.%d", 10*host+port+1),
		fmt.Sprintf("fd02::%x:%x", port+1, host+1), fmt.Sprintf("2001:db8::%x:%x", port+1, host+1),
	}
	for _, c := range choices {
		if r.IntN(3) == 0 {
			addrs = append(addrs, netip.MustParseAddr(c))
		}
	}
	if r.IntN(3) > 0 { // usually the first subnet is there
		addrs = append(addrs, netip.MustParseAddr(choices[0]))
	}
	if r.IntN(4) == 0 {
		r.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	}
	idx := r.IntN(8) / 7 // sometimes an empty entry 0
	both := r.IntN(4) > 0
	for _, a := range addrs {
		owner := dev
		if r.IntN(10) == 0 {
			owner = "other0"
		}
		types := []string{roceV2}
		if both {
			types = []string{roceV1, roceV2}
		} else if r.IntN(6) == 0 {
			types = []string{roceV1}
		}
		for _, typ := range types {
			p.GIDs = append(p.GIDs, topology.GID{Index: idx, Addr: a, Type: typ, Kind: kindOf(a), Netdev: owner})
			idx++
		}
		if owner == dev && !a.IsLinkLocalUnicast() {
			bits := 64
			if a.Is4In6() {
				bits = 24
			}
			d.Addrs = append(d.Addrs, netip.PrefixFrom(a.Unmap(), bits))
		}
	}
	p.GIDZero = r.IntN(2) * 10
	return p, d
}

// right is the oracle's own judgement of a choice.
func right(p topology.Port, idx int, profile profiles.Profile) bool {
	for _, g := range p.GIDs {
		if g.Index != idx {
			continue
		}
		if g.Type != roceV2 || g.Addr.IsLinkLocalUnicast() || g.Netdev != p.Netdev {
			return false
		}
		if profile.Fabric.GIDFamily == "ipv4" && !g.Addr.Is4In6() || profile.Fabric.GIDFamily == "ipv6" && g.Addr.Is4In6() {
			return false
		}
		for _, s := range profile.Fabric.Subnets {
			if netip.MustParsePrefix(s).Contains(g.Addr.Unmap()) {
				return true
			}
		}
		return len(profile.Fabric.Subnets) == 0
	}
	return false
}

// TestNoChoiceIsLeftThatNCCLWouldGetWrong: over random tables, versions and
// profiles, either NCCL ends on a right GID on every port that it is given, or
// fabrun says that there is no common answer. The same for UCX.
func TestNoChoiceIsLeftThatNCCLWouldGetWrong(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	silent, pinned, words, said := 0, 0, 0, 0
	for round := range 2000 {
		profile := profiles.Profile{Fabric: profiles.Fabric{LinkLayer: "ethernet", GIDFamily: []string{"", "any", "ipv4", "ipv6"}[r.IntN(4)]}}
		if r.IntN(3) == 0 {
			profile.Fabric.Subnets = [][]string{{"10.10.0.0/16"}, {"192.168.0.0/16"}, {"fd02::/16"}, {"10.10.0.0/16", "fd02::/16"}}[r.IntN(4)]
		}
		version := []string{"", "2.10.3", "2.20.5", "2.21.5", "2.27.3", "2.30.7"}[r.IntN(6)]
		hosts := make([]topology.Host, 1+r.IntN(3))
		rails := 1 + r.IntN(3)
		same := r.IntN(2) == 0 // hosts of one mould, as on a cluster
		seed := r.Uint64()
		for i := range hosts {
			hosts[i].Name = fmt.Sprintf("n%d", i)
			mould := r
			if same {
				mould = rand.New(rand.NewPCG(seed, 1))
			}
			for j := range rails {
				dev := fmt.Sprintf("eth%d", j)
				p, d := randomPort(mould, dev, i, j)
				hosts[i].HCAs = append(hosts[i].HCAs, topology.HCA{Name: fmt.Sprintf("mlx5_%d", j), Driver: "mlx5", HCAType: "MT1", Ports: []topology.Port{p}})
				hosts[i].Netdevs = append(hosts[i].Netdevs, d)
			}
		}
		res := Compute(Input{Hosts: hosts, Profile: profile, Job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: version, UCX: "1.18.0"}}})
		found := findingIDs(res)
		for i, h := range res.Hosts {
			vars := values(h.Vars)
			if !res.RDMA || vars["NCCL_IB_HCA"] == "" {
				continue
			}
			f := parseFilter(vars["NCCL_IB_HCA"])
			for _, hca := range hosts[i].HCAs {
				if !f.takes(hca.Name, 1) {
					continue
				}
				p := hca.Ports[0]
				for _, v := range versionsToTry(version) {
					got := oracle(rawTable(p), v, vars)
					if !right(p, got, profile) && found["gid.no-common"] == "" && found["gid.version-unknown"] == "" {
						t.Fatalf("round %d: NCCL %q on %s %s takes index %d with %v\ntable %+v\nfindings %v", round, v, h.Host, hca.Name, got, vars, p.GIDs, found)
					}
				}
				if ucx := ucxEnds(p, vars); !right(p, ucx, profile) && found["gid.no-common-ucx"] == "" {
					t.Fatalf("round %d: UCX on %s %s takes index %d with %v\ntable %+v\nfindings %v", round, h.Host, hca.Name, ucx, vars, p.GIDs, found)
				}
			}
			switch {
			case found["gid.no-common"] != "" || found["gid.version-unknown"] != "":
				said++
			case vars["NCCL_IB_GID_INDEX"] != "":
				pinned++
			case vars["NCCL_IB_ADDR_FAMILY"]+vars["NCCL_IB_ADDR_RANGE"] != "":
				words++
			default:
				silent++
			}
		}
	}
	t.Logf("left to NCCL %d, by family or range %d, pinned %d, no common answer said %d", silent, words, pinned, said)
	for what, n := range map[string]int{"left": silent, "words": words, "pinned": pinned, "said": said} {
		if n < 100 {
			t.Errorf("the tables hardly try %q: %d", what, n)
		}
	}
}

// versionsToTry: a version that is not known may be any.
func versionsToTry(v string) []string {
	if v == "" {
		return []string{"2.18.1", "2.27.3"}
	}
	return []string{v}
}

// ucxEnds is the entry that UCX ends on: the pinned one, or the lowest of the
// best class within the subnets given.
func ucxEnds(p topology.Port, vars map[string]string) int {
	if v, ok := vars["UCX_IB_GID_INDEX"]; ok {
		n, err := strconv.Atoi(v)
		if err != nil {
			panic(err)
		}
		return n
	}
	best, bestClass := 0, 100
	for _, g := range p.GIDs {
		if s := vars["UCX_IB_ROCE_SUBNETS"]; s != "" {
			in := false
			for x := range strings.SplitSeq(s, ",") {
				in = in || netip.MustParsePrefix(x).Contains(g.Addr.Unmap())
			}
			if !in {
				continue
			}
		}
		class := 0
		switch {
		case g.Addr.Is4In6():
		case g.Addr.IsLinkLocalUnicast():
			class = 2
		default:
			class = 1
		}
		if g.Type != roceV2 {
			class += 3
		}
		if class < bestClass {
			best, bestClass = g.Index, class
		}
	}
	return best
}
