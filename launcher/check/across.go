package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// Fact is one comparable thing about a host. Facts that mention the host
// itself (names, addresses, identifiers) are not among them.
type Fact struct {
	ID       string // "across.firmware"
	Subject  string // "mlx5_0", "NCCL"
	Value    string // "" unknown: compared with nothing
	Severity finding.Severity
	Why      string
}

// Facts lists what hosts of one job should have in common, in a stable order.
func Facts(h topology.Host) []Fact {
	var out []Fact
	add := func(id, subject, value string, sev finding.Severity, why string) {
		out = append(out, Fact{"across." + id, subject, value, sev, why})
	}
	limit := func(p *uint64) string {
		switch {
		case p == nil:
			return ""
		case *p == topology.Unlimited:
			return "unlimited"
		}
		return bytesText(*p)
	}
	if h.HCAs != nil || h.PCI != nil {
		add("hca-set", "RDMA devices", deviceNames(h), finding.Warning, "a card is missing, or is of another kind: the hosts do not have the same rails")
	}
	if h.PCI != nil || h.GPUs != nil {
		add("gpus", "GPUs", strconv.Itoa(len(h.GPUs)), finding.Error, "ranks per node differ, or a GPU has fallen off the bus")
	}
	add("cpus", "CPUs", strconv.Itoa(len(h.CPU.Online)), finding.Warning, "ranks per node differ")
	if len(h.CPU.Online) == 0 {
		out = out[:len(out)-1]
	}
	if len(h.CPU.Governors) > 0 {
		add("governor", "CPU frequency", strings.Join(slices.Sorted(maps.Keys(h.CPU.Governors)), ", "), finding.Warning, "hosts at another clock: the slowest sets the pace")
	}
	add("kernel", "kernel", h.Kernel, finding.Note, "drivers behave differently")
	for _, c := range h.HCAs {
		add("firmware", c.Name, joinKnown(c.BoardID, c.Firmware), finding.Warning, "the same card behaves differently; known faults differ")
		add("driver", c.Name, c.Driver, finding.Warning, "another driver for the same rail")
		for _, p := range c.Ports {
			portFacts(h, c, p, add)
		}
	}
	add("memlock", "locked memory", limit(h.Limits.Lockable(h.Limits.MemlockSoft)), finding.Error, "registration fails on one host only")
	if n := h.Limits.NofileSoft; n != nil {
		add("nofile", "open files", strconv.FormatUint(*n, 10), finding.Note, "large jobs fail on one host only")
	}
	add("shm", "/dev/shm", shmText(h.Limits.ShmBytes), finding.Note, "large jobs fail on one host only")
	for _, m := range h.Modules {
		if m.Name == "nvidia" || m.Name == "mlx5_core" || m.Name == "nvidia_peermem" || m.Name == "mlx5_ib" {
			add("module", m.Name, cmp.Or(m.Version, "loaded"), finding.Warning, "drivers differ")
		}
	}
	if h.PeerMemory.NvidiaPeermem != nil && len(h.GPUs) > 0 {
		add("peer-memory", "nvidia_peermem", yesNo(*h.PeerMemory.NvidiaPeermem), finding.Warning, "GPUDirect works on some hosts only: all wait for the slow ones")
	}
	softwareFacts(h, add)
	for _, g := range h.GPUs {
		if g.Driver != "" {
			add("gpu-driver", "GPU driver", g.Driver, finding.Warning, "drivers differ")
			break
		}
	}
	if d := domainText(h); d != "" {
		add("nvlink-domain", "NVLink domain", d, finding.Note, "GPUs reach each other by NVLink within one cluster and clique; between these hosts they take the network")
	}
	placeFacts(h, add)
	return out
}

// addFact takes a fact without its host.
type addFact = func(id, subject, value string, sev finding.Severity, why string)

// portFacts are those of a port.
func portFacts(h topology.Host, c topology.HCA, p topology.Port, add addFact) {
	num := func(p *int) string {
		if p == nil {
			return ""
		}
		return strconv.Itoa(*p)
	}
	s := fmt.Sprintf("%s port %d", c.Name, p.Number)
	add("state", s, p.State, finding.Error, "one rail carries nothing")
	if p.RateTrusted && p.RateGbps != nil && p.Up() {
		add("rate", s, fmt.Sprintf("%g Gb/s", *p.RateGbps), finding.Error, "the slowest port sets the pace of every collective")
	}
	add("link-layer", s, p.LinkLayer, finding.Error, "InfiniBand and Ethernet ports cannot connect")
	if p.Up() {
		add("rdma-mtu", s, num(p.ActiveMTU), finding.Error, "connections are made with the smaller; some libraries hang instead")
	}
	if p.LinkLayer == "InfiniBand" {
		add("pkey", s, keysText(p.PKeys), finding.Note, "ports talk only within a partition that both are in")
	}
	if p.Up() { // a port that is down has lost its addresses with its link
		add("gid-shape", s, gidShape(p), finding.Warning, "one GID index does not fit both hosts")
	}
	if n := h.Netdev(p.Netdev); n != nil && p.Up() {
		add("mtu", s, num(n.MTU), finding.Error, "large packets vanish on one side")
		if n.DCB != nil {
			add("trust", s, n.DCB.Trust, finding.Error, "marks are read differently: one side is not lossless")
			if n.DCB.PFC != nil {
				add("pfc", s, fmt.Sprint(n.DCB.PFC), finding.Error, "one side is not lossless")
			}
		}
	}
}

// softwareFacts are the versions of libraries and tools.
func softwareFacts(h topology.Host, add addFact) {
	bySoft := map[string][]string{}
	var kinds []string
	for _, s := range h.Software {
		switch s.Kind {
		case "perftest", "slurm":
			continue
		}
		if _, ok := bySoft[s.Kind]; !ok {
			kinds = append(kinds, s.Kind)
		}
		v := joinKnown(s.Version, s.Hash)
		if s.Path == "" && s.Detail == absent {
			v = absent
		}
		if v == "" {
			v = "version unknown"
		}
		if !slices.Contains(bySoft[s.Kind], v) {
			bySoft[s.Kind] = append(bySoft[s.Kind], v)
		}
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		slices.Sort(bySoft[k])
		add("software", k, strings.Join(bySoft[k], ", "), finding.Warning, "versions that differ may not talk to each other")
	}
}

// domainText is the NVLink domain of a host's GPUs; "" none, or not told.
func domainText(h topology.Host) string {
	var out []string
	for _, g := range h.GPUs {
		if d := g.Domain; d != nil && strings.Trim(d.Cluster, "0") != "" {
			if t := fmt.Sprintf("%s clique %d", d.Cluster, d.Clique); !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return strings.Join(out, ", ")
}

// deviceNames are those of a host's RDMA devices.
func deviceNames(h topology.Host) string {
	var out []string
	for _, c := range h.HCAs {
		out = append(out, c.Name)
	}
	return cmp.Or(strings.Join(out, " "), "none")
}

func joinKnown(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " ")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func shmText(n *int64) string {
	if n == nil {
		return ""
	}
	// Half of memory by default: hosts differ by a few kilobytes.
	return fmt.Sprintf("%d GiB", *n>>30)
}

// gidShape is the table without its addresses: "1 v2 ipv4, 3 v2 ipv6".
func gidShape(p topology.Port) string {
	if p.LinkLayer != "Ethernet" || p.GIDs == nil {
		return ""
	}
	var s []string
	for _, g := range p.GIDs {
		s = append(s, fmt.Sprintf("%d %s %s", g.Index, strings.TrimPrefix(g.Type, "IB/"), g.Kind))
	}
	return strings.Join(s, ", ")
}

type factKey struct{ id, subject string }

// absent is the value of a fact that only other hosts have.
const absent = "absent"

// table lines up facts: rows in the order of first appearance, one column a host.
func table(hosts []topology.Host) (keys []factKey, facts map[factKey]Fact, values map[factKey][]string) {
	facts, values = map[factKey]Fact{}, map[factKey][]string{}
	for i, h := range hosts {
		for _, f := range Facts(h) {
			k := factKey{f.ID, f.Subject}
			if _, ok := facts[k]; !ok {
				keys, facts[k] = append(keys, k), f
				values[k] = make([]string, len(hosts))
			}
			values[k][i] = f.Value
			if f.Value == "" {
				values[k][i] = "unknown"
			}
		}
	}
	for _, k := range keys {
		for i, v := range values[k] {
			switch {
			case v == "unknown":
				values[k][i] = ""
			case v == "" && (k.id == "across.software" || k.id == "across.module"):
				values[k][i] = absent
			}
		}
	}
	return keys, facts, values
}

// sameDevices says whether hosts have the same devices of those that the job uses.
func sameDevices(hosts []topology.Host, mine map[string]bool) bool {
	first := ""
	for i, h := range hosts {
		h.HCAs = slices.DeleteFunc(slices.Clone(h.HCAs), func(c topology.HCA) bool { return !mine[c.Name] })
		if names := deviceNames(h); i == 0 {
			first = names
		} else if names != first {
			return false
		}
	}
	return true
}

// byRail is hosts with their devices under the names that the one with most of
// them has for the same rails, and what each host calls those that it names
// otherwise.
func byRail(hosts []topology.Host) ([]topology.Host, []map[string]string) {
	most := 0
	for i, h := range hosts {
		if len(h.HCAs) > len(hosts[most].HCAs) {
			most = i
		}
	}
	same, own := make([]topology.Host, len(hosts)), make([]map[string]string, len(hosts))
	for i, h := range hosts {
		same[i], own[i] = renamed(hosts[most], h)
	}
	return same, own
}

// Across names the odd ones out: hosts whose value differs from the majority's,
// rail by rail, whatever a host calls its devices. Where there is no majority the
// finding is about no single host. ports are the job's ports by host ("mlx5_0:1";
// nil: all): what concerns others is a note.
func Across(hosts []topology.Host, ports [][]string) []finding.Finding {
	if len(hosts) < 2 {
		return nil
	}
	same, own := byRail(hosts)
	keys, facts, values := table(same)
	mine, devices := map[string]bool{}, map[string]bool{}
	all := true
	for i, h := range same {
		for j, c := range h.HCAs {
			devices[c.Name] = true
			if i >= len(ports) {
				continue
			}
			for _, p := range ports[i] {
				if dev, num, _ := strings.Cut(p, ":"); dev == hosts[i].HCAs[j].Name {
					mine[c.Name], mine[c.Name+" port "+num], all = true, true, false
				}
			}
		}
	}
	var out []finding.Finding
	for _, k := range keys {
		count := map[string]int{}
		known := 0
		for _, v := range values[k] {
			if v != "" {
				count[v]++
				known++
			}
		}
		if len(count) < 2 || k.id == "across.pkey" { // tables may differ, as long as they share a partition
			continue
		}
		var vs []string
		for v := range count {
			vs = append(vs, v)
		}
		slices.SortFunc(vs, func(a, b string) int { return cmp.Or(count[b]-count[a], cmp.Compare(a, b)) })
		f := facts[k]
		dev, _, _ := strings.Cut(k.subject, " ")
		if !all && (devices[dev] && !mine[k.subject] || k.id == "across.hca-set" && sameDevices(same, mine)) {
			f.Severity = finding.Note
		}
		if count[vs[0]]*2 <= known {
			var parts []string
			for _, v := range vs[:min(len(vs), 4)] {
				parts = append(parts, fmt.Sprintf("%s on %d", v, count[v]))
			}
			out = append(out, finding.Finding{
				ID: k.id, Severity: f.Severity, Subject: k.subject, Seen: strings.Join(parts, "; "), Wanted: "the same everywhere", Why: f.Why,
				Hint: fmt.Sprintf("'fabrun diff' of two snapshots: %s and %s differ", hostWith(hosts, values[k], vs[0]), hostWith(hosts, values[k], vs[1])),
			})
			continue
		}
		for i, v := range values[k] {
			if v != "" && v != vs[0] {
				subject := k.subject
				if name := own[i][dev]; name != "" {
					subject = name + strings.TrimPrefix(subject, dev)
				}
				if k.id == "across.hca-set" {
					v = deviceNames(hosts[i])
				}
				out = append(out, finding.Finding{
					ID: k.id, Severity: f.Severity, Host: hosts[i].Name, Subject: subject, Seen: v,
					Wanted: fmt.Sprintf("%s, as on %d of %d hosts", vs[0], count[vs[0]], known), Why: f.Why, Hint: "make it like the others, or leave the host out: --exclude " + hosts[i].Name,
				})
			}
		}
	}
	out = append(out, ownDirectories(hosts)...)
	out = append(out, partitions(hosts, ports)...)
	finding.Sort(out)
	return out
}

// partitions names the hosts that share no InfiniBand partition with most: a
// subnet manager keeps tenants apart so, and nothing between them connects.
func partitions(hosts []topology.Host, ports [][]string) []finding.Finding {
	jobs := make([][]topology.Port, len(hosts))
	for i, h := range hosts {
		for _, c := range h.HCAs {
			for _, p := range c.Ports {
				mine := len(ports) <= i || ports[i] == nil || slices.Contains(ports[i], fmt.Sprintf("%s:%d", c.Name, p.Number))
				if p.LinkLayer == "InfiniBand" && len(p.PKeys) > 0 && mine && c.Family() == topology.Verbs {
					jobs[i] = append(jobs[i], p)
				}
			}
		}
	}
	talks := func(a, b int) bool {
		if a == b || len(jobs[a]) == 0 || len(jobs[b]) == 0 {
			return true // itself, or not known
		}
		return slices.ContainsFunc(jobs[a], func(p topology.Port) bool {
			return slices.ContainsFunc(jobs[b], func(q topology.Port) bool {
				share, _ := topology.SharePartition(p, q)
				return share
			})
		})
	}
	// The host that most others can talk to stands for the job.
	most, best := 0, -1
	for i := range hosts {
		n := 0
		for j := range hosts {
			if len(jobs[i]) > 0 && talks(i, j) {
				n++
			}
		}
		if n > best {
			most, best = i, n
		}
	}
	var out []finding.Finding
	for i := range hosts {
		if talks(most, i) {
			continue
		}
		f := finding.Finding{
			ID: "across.pkey", Severity: finding.Error, Host: hosts[i].Name, Subject: "InfiniBand partition",
			Seen:   "keys " + keysText(jobs[i][0].PKeys),
			Wanted: fmt.Sprintf("a partition of %s, whose keys are %s", hosts[most].Name, keysText(jobs[most][0].PKeys)),
			Why:    "ports of different partitions, and two limited members, cannot talk: connections time out", Hint: "ask for one partition for the job's hosts (partitions.conf of the subnet manager), or leave the host out",
		}
		if len(hosts) == 2 {
			f.Host, f.Seen = "", fmt.Sprintf("%s on %s, %s on %s", keysText(jobs[most][0].PKeys), hosts[most].Name, keysText(jobs[i][0].PKeys), hosts[i].Name)
			f.Wanted = "one partition that both are in"
		}
		out = append(out, f)
	}
	return out
}

// keysText is a partition table in words; "" unknown.
func keysText(keys []uint16) string {
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%#04x", k))
	}
	return strings.Join(out, ", ")
}

func hostWith(hosts []topology.Host, values []string, v string) string {
	return hosts[slices.Index(values, v)].Name
}

// ClockReading is what a host's clock said, between two times of ours.
type ClockReading struct {
	Host           string // "" this machine
	Remote         time.Time
	Sent, Received time.Time
}

// ClockSkew names the hosts whose clock is away from most, by more than the way
// to them can explain. Away from this machine's is not enough: it may be the
// one that is wrong.
func ClockSkew(readings []ClockReading) []finding.Finding {
	type offset struct {
		host   string
		lo, hi time.Duration // against this machine
	}
	var all []offset
	for _, r := range readings {
		if !r.Remote.IsZero() {
			// The monotonic part would be subtracted otherwise: clocks are compared.
			all = append(all, offset{r.Host, r.Remote.Sub(r.Received.Round(0)), r.Remote.Sub(r.Sent.Round(0))})
		}
	}
	if len(all) < 2 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b offset) int { return cmp.Compare(a.lo+a.hi, b.lo+b.hi) })
	// Of an even number, the middle that agrees with this machine.
	usual := all[(len(all)-1)/2]
	if high := all[len(all)/2]; (high.lo + high.hi).Abs() < (usual.lo + usual.hi).Abs() {
		usual = high
	}
	var out []finding.Finding
	for _, o := range all {
		var away time.Duration
		switch lo, hi := o.lo-usual.hi, o.hi-usual.lo; {
		case lo > 0:
			away = lo
		case hi < 0:
			away = hi
		}
		if away.Abs() < time.Second {
			continue
		}
		sev := finding.Note
		if away.Abs() >= 5*time.Second {
			sev = finding.Warning
		}
		side := "ahead"
		if away < 0 {
			side = "behind"
		}
		f := finding.Finding{
			ID: "across.clock", Severity: sev, Host: o.host, Subject: "clock", Seen: fmt.Sprintf("%v or more %s", away.Abs().Round(100*time.Millisecond), side), Wanted: "the same time, as most hosts have it",
			Why: "logs cannot be put in order; munge, Kerberos and certificates fail when it grows", Hint: "chronyc tracking says how far; chrony closes it by itself, and at once only with a jump that running jobs see (chronyc makestep, on an idle node)",
		}
		if o.host == "" {
			f.Subject = "clock of the machine that looks"
		}
		out = append(out, f)
	}
	return out
}

// Login is an attempt to log in from one host to another without a password.
type Login struct {
	From, To string
	Failed   string // why ssh did not get in; "" it did
	Hint     string
	Unknown  string // why it could not be tried; "" it was
}

// Logins judges attempts from each host to the next.
func Logins(logins []Login) []finding.Finding {
	var out []finding.Finding
	for _, l := range logins {
		f := finding.Finding{
			ID: "across.ssh", Host: l.From, Subject: "ssh to " + l.To, Wanted: "a login without a password",
			Why: "Open MPI starts its daemons from node to node, and scripts of the job log in too",
		}
		switch {
		case l.Failed != "":
			f.Severity, f.Seen = finding.Warning, l.Failed
			f.Hint = "the same key and known_hosts on every node; or mpirun --mca plm_rsh_no_tree_spawn 1, which starts all from the first"
		case l.Unknown != "":
			f.Severity, f.Seen, f.Hint = finding.Note, "not tried: "+l.Unknown, "ssh "+l.From+" ssh -o BatchMode=yes "+l.To+" true"
		default:
			continue
		}
		out = append(out, f)
	}
	return out
}

// Slots names the hosts with another number of slots than most; 0 is unknown.
func Slots(names []string, slots []int) []finding.Finding {
	count := map[int]int{}
	for _, n := range slots {
		if n > 0 {
			count[n]++
		}
	}
	if len(count) < 2 {
		return nil
	}
	usual, known := 0, 0
	for n, k := range count {
		known += k
		if k > count[usual] || k == count[usual] && n > usual {
			usual = n
		}
	}
	var out []finding.Finding
	for i, n := range slots {
		if n > 0 && n != usual {
			out = append(out, finding.Finding{
				ID: "across.slots", Severity: finding.Note, Host: names[i], Subject: "slots", Seen: strconv.Itoa(n), Wanted: fmt.Sprintf("%d, as on %d of %d hosts", usual, count[usual], known),
				Why: "ranks per host differ: collectives wait for the fullest host, NCCL wants as many ranks on each", Hint: "give every host the same slots in the hostfile or the allocation, or the launcher a number per host (-N, --ntasks-per-node)",
			})
		}
	}
	return out
}

// Difference is one fact that two hosts do not share. "" is unknown.
type Difference struct {
	ID       string           `json:"id"`
	Subject  string           `json:"subject"`
	A        string           `json:"a"`
	B        string           `json:"b"`
	Severity finding.Severity `json:"severity"`
	Why      string           `json:"why"`
}

// Diff compares two hosts that should be alike, rail by rail, whatever they call
// them. What one of them does not know is no difference.
func Diff(a, b topology.Host) []Difference {
	out := []Difference{}
	same, was := renamed(a, b)
	keys, facts, values := table([]topology.Host{a, same})
	for _, k := range keys {
		v := values[k]
		if k.id == "across.hca-set" {
			v[1] = deviceNames(b)
		}
		if v[0] == v[1] || v[0] == "" && k.id != "across.state" || v[1] == "" && k.id != "across.state" {
			continue
		}
		f := facts[k]
		if k.id == "across.pkey" {
			if len(partitions([]topology.Host{a, b}, nil)) == 0 {
				f.Severity = finding.Note
			} else {
				f.Severity = finding.Error
			}
		}
		subject := k.subject
		dev, rest, _ := strings.Cut(subject, " ")
		if other := was[dev]; other != "" && k.id != "across.hca-set" {
			subject = strings.TrimSpace(dev + " / " + other + " " + rest)
		}
		out = append(out, Difference{strings.Replace(k.id, "across.", "diff.", 1), subject, cmp.Or(v[0], absent), cmp.Or(v[1], absent), f.Severity, f.Why})
	}
	return out
}
