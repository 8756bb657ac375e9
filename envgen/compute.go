package envgen

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	vartable "fabrun/envgen/vars"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// state is what the rules see: the hosts with their chosen ports, and what
// was decided for the job as a whole.
type state struct {
	in        Input
	want      gidWant
	nodes     []*node
	portRules []portRule
	rails     []Rail
	cross     crossing
	findings  []finding.Finding

	ncclGID gidPlan
	ucxGID  gidPlan
	zeroGID gidPlan // libraries whose default is index 0
}

func (s *state) add(f finding.Finding) { s.findings = append(s.findings, f) }

// varRule yields the variables of one host.
type varRule struct {
	id   string
	vars func(s *state, n *node) []Var
}

// varRules is every rule that sets something, in the order of the output.
func varRules() []varRule {
	return []varRule{
		{"hca.nccl-set", ncclHCA},
		{"hca.cross-rail", ncclCrossNIC},
		{"gid.nccl", ncclGID},
		{"hca.pkey", ncclPKey},
		{"hca.pxn", rcclPXN},
		{"hca.bond-qps", bondQPs},
		{"gdr.dmabuf", rcclDMABuf},
		{"gdr.level", ncclGDR},
		{"qos.nccl", ncclQoS},
		{"qos.adaptive-routing", ncclAdaptive},
		{"bootstrap.interface", bootstrapVars},
		{"gate.nccl", ncclGate},
		{"gate.pollara", pollaraPlugin},
		{"hca.nvshmem", nvshmem},
		{"hca.ucx-devices", ucxDevices},
		{"hca.ucx-reach", ucxReach},
		{"hca.pkey", ucxPKey},
		{"gid.ucx", ucxGID},
		{"qos.ucx", ucxQoS},
		{"gate.openmpi", openMPIGate},
		{"gate.libfabric", libfabricGate},
		{"gid.libfabric", libfabricGID},
		{"hca.mvapich", mvapich2},
		{"log.nccl", ncclLog},
		{"log.ucx", ucxLog},
	}
}

// Compute chooses the variables of every host, and says what is wrong.
func Compute(in Input) Result {
	s := &state{in: in, portRules: portRules()}
	s.want = wantOf(&in.Profile)
	s.in.Job.Settings = slices.Clone(in.Job.Settings)
	for i := range in.Hosts {
		h := &in.Hosts[i]
		s.nodes = append(s.nodes, &node{h: h, v: versionsOf(h, in.Job)})
		s.in.Job.Settings = append(s.in.Job.Settings, SiteSettings(h)...)
	}
	s.choosePorts()
	s.oneFamily()
	s.planRails()
	s.iwarpMode()
	res := Result{Rails: s.rails}
	for _, n := range s.nodes {
		if len(n.use) > 0 {
			res.RDMA = true
		}
	}
	var perHost [][]Var
	if res.RDMA {
		s.planGIDs()
		s.oddNodes()
		s.otherFabrics()
		s.unreadFiles()
		s.portFindings()
		perHost = make([][]Var, len(s.nodes))
		for i, n := range s.nodes {
			if len(n.use) == 0 || in.Profile.Fabric.SetNothing {
				continue
			}
			for _, r := range varRules() {
				had := len(n.left)
				vars := r.vars(s, n)
				for j := range n.left[had:] {
					n.left[had+j].Rule, n.left[had+j].Origin, n.left[had+j].Scope = r.id, FromPlan, NodeScope
				}
				for _, v := range vars {
					v.Rule, v.Origin = r.id, FromPlan
					if v.Scope == "" {
						v.Scope = JobScope
					}
					perHost[i] = append(perHost[i], v)
				}
			}
		}
		s.qosFindings()
	} else {
		perHost = make([][]Var, len(s.nodes))
		s.noRDMA()
	}
	for i, n := range s.nodes {
		vars := perHost[i]
		if res.RDMA && !in.Profile.Fabric.SetNothing && len(n.use) > 0 {
			vars = s.withProfile(n, vars)
		}
		vars = s.withUser(n, vars)
		s.knownBugs(n, vars)
		s.explainPorts(n, vars)
		left := slices.DeleteFunc(n.left, func(v Var) bool { return indexVar(vars, v.Name) >= 0 })
		res.Hosts = append(res.Hosts, HostEnv{Host: n.h.Name, Vars: vars, Left: left})
	}
	markScopes(res.Hosts)
	res.Networks = s.networks()
	res.Contract, res.Promise = s.contract(res.Hosts)
	for _, h := range in.Profile.Hints {
		s.add(finding.Finding{
			ID: "profile.hint", Severity: finding.Note, Subject: "profile " + in.Profile.Name, Seen: "cannot be seen from inside this machine",
			Wanted: h, Why: "the profile's site asks for it", Hint: "",
		})
	}
	s.judgeAll()
	res.Findings = s.collapse()
	finding.Sort(res.Findings)
	res.Findings = finding.Fold(res.Findings)
	return res
}

// explainPorts keeps what was seen of a node's ports where no variable shows it.
func (s *state) explainPorts(n *node, vars []Var) {
	shown := func(name string) bool {
		return indexVar(vars, name) >= 0 || slices.ContainsFunc(n.left, func(v Var) bool { return v.Name == name })
	}
	if len(n.ports) == 0 || shown("NCCL_IB_HCA") || shown("UCX_NET_DEVICES") {
		return
	}
	why := "no port of this node is the job's"
	if len(n.use) > 0 {
		why = "the job's ports are not for libraries that ask for verbs devices: " + strings.Join(portNames(n.use), ", ")
	}
	n.leave(Var{Name: "NCCL_IB_HCA", Rule: "hca.nccl-set", Origin: FromPlan, Scope: NodeScope, Why: why, Evidence: portEvidence(n.use), Rejected: n.rejectedPorts()})
}

func wantOf(p *profiles.Profile) gidWant {
	w := gidWant{version: roceV2, family: p.Fabric.GIDFamily}
	if w.family == "" {
		w.family = "any"
	}
	if p.Fabric.RoCEVersion == 1 {
		w.version = roceV1
	}
	for _, t := range p.Fabric.Subnets {
		// profiles are checked when read; a value made by hand that is no
		// subnet narrows nothing
		if sub, err := netip.ParsePrefix(t); err == nil {
			w.subnets = append(w.subnets, sub)
		}
	}
	return w
}

func (w gidWant) text() string {
	t := "a " + w.version + " GID with "
	switch w.family {
	case "ipv4":
		t += "an IPv4 address"
	case "ipv6":
		t += "a global IPv6 address"
	default:
		t += "a routable address"
	}
	if len(w.subnets) > 0 {
		var subs []string
		for _, p := range w.subnets {
			subs = append(subs, p.String())
		}
		t += " in " + strings.Join(subs, ", ")
	}
	return t
}

// withProfile puts the profile's own variables in: they beat the plan's.
func (s *state) withProfile(n *node, vars []Var) []Var {
	put := func(set profiles.Setting, origin Origin, source string) {
		if k, ok := vartable.Known(set.Name); ok && existsIn(k, n.v) == no {
			s.add(finding.Finding{
				ID: "version.profile", Severity: finding.Note, Host: n.h.Name, Subject: set.Name,
				Seen: source + " sets it", Wanted: "a library that knows it", Why: "the library found here does not know this variable, so it is not set", Hint: "",
			})
			return
		}
		v := Var{
			Name: set.Name, Value: set.On(SeenOn(n.h).PCI), Scope: JobScope, Origin: origin, Rule: "profile.env", Why: set.Why,
			Evidence: []string{source},
		}
		if i := indexVar(vars, set.Name); i >= 0 {
			if vars[i].Value != v.Value {
				v.Overrode = fmt.Sprintf("%s would have said %s (%s)", vars[i].Origin, vars[i].Value, vars[i].Rule)
			}
			vars[i] = v
			return
		}
		vars = append(vars, v)
	}
	for _, e := range s.in.Profile.Env {
		put(e, FromProfile, "profile "+s.in.Profile.Name)
	}
	if w := s.in.Workload; w != nil {
		for _, e := range w.Env {
			if i := indexVar(vars, e.Name); i < 0 || vars[i].Origin == FromPlan {
				put(e, FromWorkload, "workload profile "+w.Name)
			}
		}
	}
	return vars
}

// withUser replaces what somebody set before: it wins, and is shown.
func (s *state) withUser(n *node, vars []Var) []Var {
	for _, set := range s.settings(n) {
		k, known := vartable.Known(set.Name)
		i := indexVar(vars, set.Name)
		if i < 0 && !known {
			continue
		}
		if i >= 0 && shippedDefault(set) {
			vars[i].Overrode = fmt.Sprintf("the distribution's own %s says %s", set.Where, set.Value)
			continue
		}
		v := Var{
			Name: set.Name, Value: set.Value, Scope: JobScope, Origin: set.Origin, Rule: "user.set",
			Why: "set before fabrun: kept", Evidence: []string{set.Where},
		}
		if set.Host != "" {
			v.Scope = NodeScope
		}
		if known {
			v.IfWrong = k.IfWrong
		}
		if i >= 0 {
			if vars[i].Value != set.Value {
				v.Overrode = fmt.Sprintf("%s would have said %s: %s", vars[i].Origin, vars[i].Value, vars[i].Why)
			}
			vars[i] = v
			continue
		}
		vars = append(vars, v)
	}
	return vars
}

// settings are what is already set on a host, the strongest of each name:
// the job's own settings in the order in which they are given (the last one
// of a name wins), then configuration files.
func (s *state) settings(n *node) []Setting {
	var out []Setting
	for _, set := range s.in.Job.Settings {
		if set.Host != "" && set.Host != n.h.Name {
			continue
		}
		i := slices.IndexFunc(out, func(o Setting) bool { return o.Name == set.Name })
		switch {
		case i < 0:
			out = append(out, set)
		case originRank(set.Origin) > originRank(out[i].Origin), set.Origin == out[i].Origin && !firstWins(set):
			out[i] = set
		}
	}
	return out
}

// firstWins says whether of two lines that set the same name the first counts:
// NCCL applies its files with setenv(overwrite=0); UCX and Open MPI overwrite.
func firstWins(set Setting) bool {
	return set.Origin == FromSite && strings.HasPrefix(set.Name, "NCCL_")
}

// originRank orders those who may say a value; a higher one wins.
func originRank(o Origin) int {
	switch o {
	case FromUser:
		return 5
	case FromImage:
		return 4
	case FromSite:
		return 3
	case FromProfile:
		return 2
	case FromWorkload:
		return 1
	default:
		return 0
	}
}

// isSet says whether somebody else set one of these variables on a host.
func (s *state) isSet(n *node, names ...string) bool {
	return slices.ContainsFunc(s.in.Job.Settings, func(set Setting) bool {
		return slices.Contains(names, set.Name) && (set.Host == "" || set.Host == n.h.Name)
	})
}

// beaten says whether a stronger setting of the same name holds wherever set does.
func (s *state) beaten(set Setting) bool {
	return slices.ContainsFunc(s.in.Job.Settings, func(o Setting) bool {
		return o.Name == set.Name && originRank(o.Origin) > originRank(set.Origin) && (o.Host == "" || o.Host == set.Host)
	})
}

func indexVar(vars []Var, name string) int {
	return slices.IndexFunc(vars, func(v Var) bool { return v.Name == name })
}

// markScopes makes a variable node-scoped wherever hosts differ in it.
func markScopes(hosts []HostEnv) {
	if len(hosts) < 2 {
		return
	}
	first := map[string]string{}
	count := map[string]int{}
	differs := map[string]bool{}
	for _, h := range hosts {
		for _, v := range h.Vars {
			if have, ok := first[v.Name]; ok && have != v.Value {
				differs[v.Name] = true
			} else if !ok {
				first[v.Name] = v.Value
			}
			count[v.Name]++
		}
	}
	for i := range hosts {
		for j := range hosts[i].Vars {
			v := &hosts[i].Vars[j]
			if v.Scope == JobScope && (differs[v.Name] || count[v.Name] != len(hosts)) {
				v.Scope = NodeScope
			}
		}
	}
}

func (s *state) noRDMA() {
	seen := "no RDMA device"
	hint := ""
	var ports []*port
	for _, n := range s.nodes {
		ports = append(ports, n.ports...)
		for _, p := range n.ports {
			switch p.rejectID {
			case "hca.device-node":
				hint = n.h.Container.GiveRDMA()
			case "hca.memlock":
				hint = n.h.RaiseMemlock()
			}
		}
	}
	if len(ports) > 0 {
		seen = whyOut(ports)
	}
	if s.unfit() {
		s.add(finding.Finding{
			ID: "profile.unfit", Severity: finding.Error, Subject: "profile " + s.in.Profile.Name, Seen: seen, Wanted: "a profile that fits these ports",
			Why: "the profile leaves no port of these hosts, so nothing was set: the job runs as it would without fabrun", Hint: "another --profile ('fabrun profile list'), or none",
		})
		return
	}
	sev := finding.Note
	if len(ports) > 0 {
		sev = finding.Warning // devices are there and none can be used
	} else if i := slices.IndexFunc(s.nodes, func(n *node) bool { return n.h.Container.Kind != "" }); i >= 0 {
		hint = "this is a container; where its host has RDMA, it is given: " + s.nodes[i].h.Container.GiveRDMA()
	}
	s.add(finding.Finding{
		ID: "hca.none", Severity: sev, Seen: seen, Wanted: "an RDMA port that the job can use",
		Subject: "the job's hosts", Why: "the job runs over TCP; nothing was set", Hint: hint,
	})
}

// whyOut says why none of these ports can be used, the first reasons each once.
func whyOut(ports []*port) string {
	var reasons []string
	told := map[string][]string{}
	for _, p := range ports {
		why := p.reject
		if dev := p.hca.CharDevice; p.rejectID == "hca.device-node" && dev != "" {
			why = strings.ReplaceAll(why, dev, "uverbs…")
		}
		if told[why] == nil {
			reasons = append(reasons, why)
		}
		if !slices.Contains(told[why], p.name()) {
			told[why] = append(told[why], p.name())
		}
	}
	var said []string
	for _, why := range reasons[:min(3, len(reasons))] {
		said = append(said, fewNames(told[why])+": "+why)
	}
	return strings.Join(said, "; ")
}

// fewNames writes out the first of many names.
func fewNames(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more ports", names[0], len(names)-1)
}

// unfit says whether ports are there that only the profile rules out.
func (s *state) unfit() bool {
	for _, n := range s.nodes {
		for _, p := range n.ports {
			if p.rejectID == "hca.link-layer" || p.rejectID == "hca.driver" || p.rejectID == "hca.excluded" {
				return true
			}
		}
	}
	return false
}

// oddNodes names hosts that cannot take part as the others do.
func (s *state) oddNodes() {
	most := 0
	for _, n := range s.nodes {
		most = max(most, len(n.use))
	}
	for _, n := range s.nodes {
		if len(n.use) > 0 {
			continue
		}
		seen := "no RDMA device"
		if len(n.ports) > 0 {
			seen = whyOut(n.ports)
		}
		s.add(finding.Finding{
			ID: "hca.none-on-host", Severity: finding.Error, Host: n.h.Name, Subject: "RDMA devices", Seen: seen,
			Wanted: fmt.Sprintf("%d usable, as on the other hosts", most),
			Why:    "the other hosts use RDMA and this one cannot: NCCL aborts, MPI falls back to TCP towards it",
			Hint:   "leave " + n.h.Name + " out, or repair it",
		})
	}
}

func (s *state) networks() []string {
	var out []string
	put := func(x string) {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	for _, n := range s.nodes {
		for _, p := range n.use {
			switch {
			case p.family == topology.EFA:
				put("efa")
			case p.family == topology.CXI:
				put("cxi")
			case p.family == topology.PSM:
				put("psm")
			case p.roce():
				put("roce")
			case p.infiniband():
				put("ib")
			default: // an NCCL topology XML does not say
				put("rdma")
			}
		}
	}
	if len(out) == 0 {
		out = append(out, "socket")
	}
	return out
}

// contract says what the job should run on: in one line, and as values.
func (s *state) contract(hosts []HostEnv) (string, Promise) {
	nets := s.networks()
	if nets[0] == "socket" && s.unfit() {
		return "nothing set: profile " + s.in.Profile.Name + " fits no port of the job's hosts", Promise{}
	}
	if nets[0] == "socket" {
		return "TCP: no RDMA on the job's hosts", Promise{}
	}
	if s.ucxGID.hangs && !s.usesNCCL() {
		return "TCP: UCX's wire-up over rxe needs a global IPv6 address on every port", Promise{}
	}
	var promise Promise
	words := map[string]string{
		"rdma": "InfiniBand or RoCE", "ib": "InfiniBand", "roce": strings.TrimPrefix(s.want.version, "IB/"), "efa": "EFA", "cxi": "Slingshot", "psm": "Omni-Path",
	}
	var kinds []string
	for _, n := range nets {
		kinds = append(kinds, words[n])
	}
	rails := len(s.rails)
	unit := "rails"
	if rails == 1 {
		unit = "rail"
	}
	count := strconv.Itoa(rails)
	left, others, pinned := s.railsLeft(hosts)
	if !others {
		promise.Rails = &left
	}
	if left < rails {
		count = fmt.Sprintf("%d of %d", left, rails)
	}
	text := fmt.Sprintf("%s %s of %s", count, unit, strings.Join(kinds, " and "))
	if r := s.commonRate(); r > 0 {
		each := r
		text += fmt.Sprintf(" (%g Gb/s", r)
		if k := s.devicesPerCable(); k > 1 {
			each = r / float64(k)
			text += fmt.Sprintf(" a cable, which shows as %d devices", k)
		}
		promise.RateGbps = &each
		text += ")"
	}
	if i := s.firstUsed(); i < len(hosts) {
		var direct string
		direct, promise.GPUDirect = s.gdrPromise(s.nodes[i], hosts[i].Vars)
		text += direct
	}
	if q := s.in.Profile.Fabric.QoS; q != nil && slices.Contains(nets, "roce") {
		promise.DSCP, promise.Priority = &q.RDMA.DSCP, q.RDMA.Priority
		text += fmt.Sprintf(", DSCP %d", q.RDMA.DSCP)
		if q.RDMA.Priority != nil {
			text += fmt.Sprintf(", priority %d", *q.RDMA.Priority)
		}
	}
	if pinned != "" {
		text += " (" + pinned + ")"
	}
	if s.in.Profile.Fabric.SetNothing {
		text += "; nothing set"
	}
	return text, promise
}

// devicesPerCable is how many of a host's devices share one port of a card, as where
// it sits in two PCIe slots, or hangs on two PCIe controllers of a chip (Socket
// Direct; DGX Spark): one function number of one card at several slots. Each
// shows the rate of the whole cable, and all of them are needed for it.
func (s *state) devicesPerCable() int {
	most := 1
	for _, n := range s.nodes {
		slots := map[string][]string{}
		for _, p := range n.use {
			_, function, ok := strings.Cut(p.hca.PCI, ".")
			if guid := p.hca.SysImageGUID; ok && guid != "" && strings.Trim(guid, "0:") != "" && !p.hca.VF && !p.hca.Bond {
				key := fmt.Sprintf("%s %s %d", guid, function, p.p.Number)
				slots[key] = append(slots[key], slot(p.hca.PCI))
				most = max(most, len(slots[key]))
			}
		}
	}
	return most
}

func (s *state) firstUsed() int {
	return max(0, slices.IndexFunc(s.nodes, func(n *node) bool { return len(n.use) > 0 }))
}

// usesNCCL says whether NCCL's variables are of use: a GPU, or the library,
// on some host, unless it is known that the job uses no GPU.
func (s *state) usesNCCL() bool {
	if u := s.in.Job.UsesGPU; u != nil {
		return *u
	}
	return slices.ContainsFunc(s.nodes, func(n *node) bool {
		return len(n.h.GPUs) > 0 || n.v.NCCL != "" || hasSoftware(n.h, "nccl", "rccl")
	})
}

// collapse joins findings that differ in nothing but their host.
func (s *state) collapse() []finding.Finding {
	var out []finding.Finding
	at := map[finding.Finding]int{}
	hosts := map[int][]string{}
	for _, f := range s.findings {
		key := f
		key.Host = ""
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, f)
		}
		if !slices.Contains(hosts[i], f.Host) {
			hosts[i] = append(hosts[i], f.Host)
		}
	}
	for i := range out {
		names := hosts[i]
		if len(names) < 2 {
			continue
		}
		out[i].Host = ""
		where := strings.Join(names, ", ")
		if len(names) == len(s.nodes) {
			where = fmt.Sprintf("all %d hosts", len(names))
		} else if len(names) > 8 {
			where = fmt.Sprintf("%s and %d more", strings.Join(names[:8], ", "), len(names)-8)
		}
		out[i].Subject += " on " + where
	}
	return out
}
