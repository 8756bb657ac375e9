package envgen

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	vartable "fabrun/envgen/vars"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// Judge says what is wrong with variables that somebody set: in the
// environment, on a command line, in a configuration file or in a script.
// Hosts may be empty: then only what is wrong anywhere is found. A profile and
// versions sharpen it where they are known.
func Judge(settings []Setting, hosts []topology.Host, profile *profiles.Profile, versions Versions) []finding.Finding {
	in := Input{Hosts: hosts, Job: Job{Settings: settings, Versions: &versions}}
	if profile != nil {
		in.Profile = *profile
	}
	s := &state{in: in, portRules: portRules(), want: wantOf(&in.Profile)}
	for i := range hosts {
		s.nodes = append(s.nodes, &node{h: &hosts[i], v: versions})
	}
	s.choosePorts()
	s.judgeAll()
	out := s.collapse()
	finding.Sort(out)
	return out
}

// judges is every trap that is looked for in what the user set, one setting at
// a time.
func judges() []func(j *judging, set Setting) {
	return []func(j *judging, set Setting){
		judgeName,
		judgeForm,
		judgeOldName,
		judgeVersion,
		judgeHCA,
		judgeUCXDevices,
		judgeNarrow,
		judgePerRank,
		judgeGIDPin,
		judgeRange,
		judgeTC,
		judgeInterface,
		judgeTCP,
		judgeGDR,
		judgeLog,
	}
}

// judging is one setting's look at the job.
type judging struct {
	s     *state
	all   []Setting // in force together with it
	known vartable.Variable
	isOne bool // known holds something
}

func (s *state) judgeAll() {
	for _, set := range s.in.Job.Settings {
		if set.Origin == FromPlan || s.beaten(set) || shippedDefault(set) && !s.in.Profile.Fabric.SetNothing {
			continue
		}
		k, ok := vartable.Known(set.Name)
		for _, judge := range judges() {
			judge(&judging{s: s, all: s.in.Job.Settings, known: k, isOne: ok}, set)
		}
	}
	s.judgeTogether()
}

// say adds a finding about one setting. host is "" where it holds anywhere.
func (j *judging) say(id string, sev finding.Severity, host string, set Setting, f finding.Finding) {
	f.ID, f.Severity, f.Host = id, sev, host
	f.Subject = set.Name
	what := vartable.Redact(set.Name + "=" + set.Value)
	if f.Seen == "" {
		f.Seen = what
	} else {
		f.Seen = what + ": " + f.Seen
	}
	if set.Where != "" {
		f.Seen += " (" + set.Where + ")"
	}
	j.s.add(f)
}

// nodesOf are the hosts that a setting holds on.
func (j *judging) nodesOf(set Setting) []*node {
	if set.Host == "" {
		return j.s.nodes
	}
	for _, n := range j.s.nodes {
		if n.h.Name == set.Host {
			return []*node{n}
		}
	}
	return nil
}

// variable says whether a value still has something for a shell to fill in.
func variable(value string) bool { return strings.ContainsAny(value, "$`") }

func judgeName(j *judging, set Setting) {
	if j.isOne || !slices.ContainsFunc(vartable.OwnPrefixes(), func(p string) bool { return strings.HasPrefix(strings.ToUpper(set.Name), p) }) {
		return
	}
	near, ok := vartable.Nearest(set.Name)
	if !ok {
		if !ofTransport(set.Name) {
			j.say("value.unknown-name", finding.Note, set.Host, set, finding.Finding{
				Seen: "not known to me", Wanted: "a name that the library reads", Why: "a newer library may have it; a wrong name does nothing, silently",
				Hint: "see " + cmpOr(vartable.Documentation(strings.ToLower(strings.SplitN(set.Name, "_", 2)[0])), "the library's documentation"),
			})
		}
		return
	}
	j.say("value.misspelt", finding.Warning, set.Host, set, finding.Finding{
		Seen: "no library reads this name", Wanted: near.Name,
		Why: "it does nothing, silently", Hint: "perhaps meant: " + near.Name + "=" + set.Value,
	})
}

// ofTransport says whether a name is an option of one of UCX's transports: each
// has a table of its own, which differs by version and by what UCX was built with.
func ofTransport(name string) bool {
	rest, ok := strings.CutPrefix(name, "UCX_")
	return ok && slices.ContainsFunc([]string{
		"IB_", "RC_", "DC_", "UD_", "GGA_", "SRD_", "TCP_", "SELF_", "MM_", "POSIX_", "SYSV_", "XPMEM_", "CMA_", "KNEM_", "CUDA_", "GDR_", "ROCM_", "ZE_", "RDMACM_", "SOCKCM_", "CM_", "MEM_", "GA_",
	}, func(p string) bool { return strings.HasPrefix(rest, p) })
}

func judgeForm(j *judging, set Setting) {
	if !j.isOne || variable(set.Value) {
		return
	}
	v := set.Value
	if len(v) >= 2 && (v[0] == '"' && v[len(v)-1] == '"' || v[0] == '\'' && v[len(v)-1] == '\'') {
		j.say("value.quotes", finding.Error, set.Host, set, finding.Finding{
			Seen: "the quotes are part of the value", Wanted: "the bare value",
			Why: "nothing removes quotes here, and the library reads them", Hint: set.Name + "=" + v[1:len(v)-1],
		})
		return
	}
	if strings.TrimSpace(v) != v {
		j.say("value.space", finding.Warning, set.Host, set, finding.Finding{
			Seen: "a space at the end is part of the value", Wanted: "the bare value",
			Why: "the library does not trim it", Hint: set.Name + "=" + strings.TrimSpace(v),
		})
		return
	}
	if v == "" {
		return
	}
	switch j.known.Kind {
	case vartable.Int, vartable.Bool:
		j.judgeNumber(set)
	case vartable.Enum:
		j.judgeWord(set)
	}
}

func (j *judging) judgeNumber(set Setting) {
	k, v := j.known, set.Value
	if k.Library != "nccl" {
		n, err := strconv.Atoi(v)
		if err != nil {
			if k.Kind == vartable.Int && v != "auto" && v != "inf" && k.Library != "ucx" {
				j.say("value.not-a-number", finding.Error, set.Host, set, finding.Finding{Wanted: "a number", Why: k.Library + " cannot read it", Hint: ""})
			}
			return
		}
		if k.Kind == vartable.Int && k.Max > k.Min && (n < k.Min || n > k.Max) {
			j.say("value.range", finding.Error, set.Host, set, finding.Finding{Wanted: fmt.Sprintf("%d to %d", k.Min, k.Max), Why: k.IfWrong, Hint: ""})
		}
		return
	}
	n, exact := ncclInt(v)
	if !exact {
		j.say("value.not-a-number", finding.Error, set.Host, set, finding.Finding{
			Seen: fmt.Sprintf("NCCL reads this as %d", n), Wanted: "a number", Why: "NCCL takes the digits at the front and ignores the rest, silently",
			Hint: set.Name + "=" + map[bool]string{true: "1", false: strconv.FormatInt(n, 10)}[isTrueWord(v)],
		})
		return
	}
	if len(v) > 1 && v[0] == '0' && v[1] != 'x' && v[1] != 'X' {
		j.say("value.octal", finding.Warning, set.Host, set, finding.Finding{
			Seen: fmt.Sprintf("NCCL reads this as octal: %d", n), Wanted: "no zero at the front", Why: "a number that begins with 0 is octal", Hint: set.Name + "=" + strings.TrimLeft(v, "0"),
		})
	}
	lo, hi := k.Min, k.Max
	if k.Kind == vartable.Bool {
		lo, hi = 0, 1
	}
	if hi > lo && (n < int64(lo) || n > int64(hi)) {
		j.say("value.range", finding.Error, set.Host, set, finding.Finding{Wanted: fmt.Sprintf("%d to %d", lo, hi), Why: cmpOr(k.IfWrong, "NCCL does not check the range"), Hint: ""})
	}
}

func isTrueWord(v string) bool {
	switch strings.ToLower(v) {
	case "yes", "y", "true", "on":
		return true
	}
	return false
}

func (j *judging) judgeWord(set Setting) {
	k, v := j.known, set.Value
	if slices.Contains(k.Values, v) {
		return
	}
	if slices.Contains(k.Values, "PXB") && v[0] >= '0' && v[0] <= '9' {
		old := []string{"LOC", "PIX", "PXB", "PHB", "SYS"}
		n, _ := ncclInt(v)
		word := old[min(max(int(n), 0), 4)]
		j.say("value.old-level", finding.Note, set.Host, set, finding.Finding{
			Seen: "the old numbers: read as " + word, Wanted: "the word", Why: "numbers are easily misread: they are not NCCL's present order", Hint: set.Name + "=" + word,
		})
		return
	}
	hint := ""
	if i := slices.IndexFunc(k.Values, func(w string) bool { return strings.EqualFold(w, v) }); i >= 0 {
		hint = set.Name + "=" + k.Values[i]
	}
	why := "the library does not know this word"
	if k.Library == "nccl" {
		why = "NCCL takes its default instead, silently"
	}
	if k.Name == "I_MPI_FABRICS" {
		why = "dapl, tmi and ofa left Intel MPI with 2019; today it is shm:ofi"
		hint = "I_MPI_FABRICS=shm:ofi"
	}
	j.say("value.word", finding.Error, set.Host, set, finding.Finding{Wanted: "one of " + strings.Join(k.Values, ", "), Why: why, Hint: hint})
}

func judgeOldName(j *judging, set Setting) {
	if !j.isOne || j.known.Instead == "" {
		return
	}
	j.say("version.old-name", finding.Warning, set.Host, set, finding.Finding{
		Seen: "an old name", Wanted: j.known.Instead, Why: "newer releases of the library read the new name", Hint: "use " + j.known.Instead,
	})
}

func judgeVersion(j *judging, set Setting) {
	if !j.isOne || j.known.Instead != "" {
		return
	}
	versions := []Versions{}
	if j.s.in.Job.Versions != nil {
		versions = append(versions, *j.s.in.Job.Versions)
	} else {
		for _, n := range j.nodesOf(set) {
			versions = append(versions, n.v)
		}
	}
	for _, v := range versions {
		if existsIn(j.known, v) != no {
			continue
		}
		why := "the library found does not read it: it does nothing, silently"
		if j.known.Library == "ucx" {
			why = "UCX warns about unknown names on every rank"
		}
		when := "from " + j.known.Since + " on"
		if j.known.Until != "" && atLeast(versionFor(j.known, v), j.known.Until) == yes {
			when = "before " + j.known.Until
		}
		j.say("version.unknown-to-library", finding.Warning, set.Host, set, finding.Finding{
			Seen: fmt.Sprintf("%s %s is used", j.known.Library, versionFor(j.known, v)), Wanted: j.known.Library + " " + when, Why: why, Hint: "",
		})
		return
	}
}

func judgeHCA(j *judging, set Setting) {
	if set.Name != "NCCL_IB_HCA" || variable(set.Value) || set.Value == "" {
		return
	}
	f := parseFilter(set.Value)
	if strings.Contains(strings.TrimPrefix(set.Value, "^"), ",^") || strings.Contains(strings.TrimPrefix(strings.TrimPrefix(set.Value, "^"), "="), ",=") {
		j.say("hca.list-form", finding.Error, set.Host, set, finding.Finding{
			Seen: "'^' or '=' inside the list", Wanted: "once, before the first name",
			Why: "it holds for the whole list and is part of a name elsewhere", Hint: "NCCL_IB_HCA=" + strings.NewReplacer(",^", ",", ",=", ",").Replace(set.Value),
		})
	}
	nodes := j.nodesOf(set)
	if len(nodes) == 0 {
		if f.exact || f.exclude {
			return
		}
		for _, it := range f.items {
			if n := len(it.name); n > 1 && it.name[n-1] == '1' && !(it.name[n-2] >= '0' && it.name[n-2] <= '9') && it.port < 0 {
				j.say("hca.prefix", finding.Warning, set.Host, set, finding.Finding{
					Seen: fmt.Sprintf("%s is a prefix: it also takes %s0, %s1, …", it.name, it.name, it.name), Wanted: "exact names",
					Why: "without '=' every device whose name begins so is used", Hint: "NCCL_IB_HCA='=" + set.Value + "'",
				})
				return
			}
		}
		return
	}
	for _, n := range nodes {
		j.judgeHCAOn(n, set, f)
	}
}

func (j *judging) judgeHCAOn(n *node, set Setting, f filter) {
	var useful, useless, other, extra []string
	for _, p := range n.ports {
		if p.family != topology.Verbs && p.family != topology.PSM || !f.takes(p.hca.Name, p.p.Number) {
			continue
		}
		switch {
		case p.rejectID == "":
			useful = append(useful, p.name())
		case p.leftOut():
			other = append(other, p.name()+" ("+p.reject+")")
		default:
			useless = append(useless, p.name()+" ("+p.reject+")")
		}
		if !f.exact && !f.exclude && slices.ContainsFunc(f.items, func(it filterItem) bool {
			return it.name != p.hca.Name && strings.HasPrefix(p.hca.Name, it.name) && it.name != "" && it.name[len(it.name)-1] >= '0' && it.name[len(it.name)-1] <= '9' &&
				hasHCA(n, it.name) && !slices.ContainsFunc(f.items, func(o filterItem) bool { return o.name == p.hca.Name })
		}) {
			extra = append(extra, p.hca.Name)
		}
	}
	if len(extra) > 0 {
		j.say("hca.prefix", finding.Warning, n.h.Name, set, finding.Finding{
			Seen: "a prefix: it also takes " + strings.Join(extra, ", "), Wanted: "exact names",
			Why: "without '=' every device whose name begins so is used", Hint: "NCCL_IB_HCA='=" + set.Value + "'",
		})
	}
	var absent []string
	if !f.exclude {
		for _, it := range f.items {
			if !slices.ContainsFunc(n.ports, func(p *port) bool { return f.matchesItem(it, p.hca.Name, p.p.Number) }) {
				absent = append(absent, it.name)
			}
		}
	}
	if len(other) > 0 {
		j.say("hca.takes-other", finding.Warning, n.h.Name, set, finding.Finding{
			Seen: "takes " + strings.Join(other, ", "), Wanted: "ports of the job's fabric: " + strings.Join(portNames(n.verbsPorts(true)), ", "),
			Why: "kept, as you say; where it is another network's port its connections time out, or are slow", Hint: hcaHint(n) + ", or leave it as it is where this is the fabric",
		})
	}
	switch {
	case len(useful) == 0 && len(other) == 0 && len(n.ports) > 0:
		seen := "takes no usable port"
		if len(useless) > 0 {
			seen = "takes only " + strings.Join(useless, ", ")
		}
		j.say("hca.takes-nothing", finding.Error, n.h.Name, set, finding.Finding{
			Seen: seen, Wanted: "ports that are up and on the fabric: " + strings.Join(portNames(n.verbsPorts(true)), ", "),
			Why: "NCCL finds no device and uses TCP", Hint: hcaHint(n),
		})
	case len(absent) > 0:
		j.say("hca.absent", finding.Error, n.h.Name, set, finding.Finding{
			Seen: "not on this host: " + strings.Join(absent, ", "), Wanted: "devices that are there",
			Why: "the rails that were meant are not used", Hint: hcaHint(n),
		})
	case len(useless) > 0:
		sev := finding.Error
		if !f.exact {
			sev = finding.Warning
		}
		j.say("hca.takes-unusable", sev, n.h.Name, set, finding.Finding{
			Seen: "takes " + strings.Join(useless, ", "), Wanted: "ports that are up and on the fabric",
			Why: "a port that is down is skipped, another network's makes connections time out", Hint: hcaHint(n),
		})
	}
}

func hasHCA(n *node, name string) bool {
	return slices.ContainsFunc(n.h.HCAs, func(h topology.HCA) bool { return h.Name == name })
}

func hcaHint(n *node) string {
	ps := n.verbsPorts(true)
	if len(ps) == 0 {
		return "unset NCCL_IB_HCA"
	}
	return "NCCL_IB_HCA='=" + strings.Join(portNames(ps), ",") + "'"
}

func judgeUCXDevices(j *judging, set Setting) {
	if set.Name != "UCX_NET_DEVICES" || variable(set.Value) || set.Value == "all" || set.Value == "" || strings.HasPrefix(set.Value, "^") {
		return
	}
	items := strings.Split(set.Value, ",")
	if len(j.s.nodes) == 0 {
		for _, it := range items {
			if rdmaName(it) && !strings.Contains(it, ":") {
				j.sayPortless(set, "", it)
			}
		}
		return
	}
	for _, n := range j.nodesOf(set) {
		var absent, tcp, dead, other []string
		for _, it := range items {
			name, _, hasPort := strings.Cut(it, ":")
			switch {
			case strings.Contains(it, "["): // ranges, 1.22 and later
			case hasHCA(n, name) && !hasPort:
				j.sayPortless(set, n.h.Name, it)
			case n.netdev(it) != nil:
				tcp = append(tcp, it)
			case hasPort && slices.ContainsFunc(n.ports, func(p *port) bool { return p.name() == it }):
				for _, p := range n.ports {
					switch {
					case p.name() != it || p.rejectID == "":
					case p.leftOut():
						other = append(other, it+" ("+p.reject+")")
					default:
						dead = append(dead, it+" ("+p.reject+")")
					}
				}
			default:
				absent = append(absent, it)
			}
		}
		good := strings.Join(portNames(n.verbsPorts(false)), ",")
		if len(absent) > 0 {
			j.say("hca.ucx-absent", finding.Error, n.h.Name, set, finding.Finding{
				Seen: "not on this host: " + strings.Join(absent, ", "), Wanted: cmpOr(good, "devices that are there"),
				Why: "UCX warns and goes on with what remains; with nothing left the job aborts", Hint: ucxHint(good),
			})
		}
		if len(other) > 0 {
			j.say("hca.takes-other", finding.Warning, n.h.Name, set, finding.Finding{
				Seen: "takes " + strings.Join(other, ", "), Wanted: cmpOr(good, "ports of the job's fabric"),
				Why: "kept, as you say; where it is another network's port its connections time out, or are slow", Hint: ucxHint(good),
			})
		}
		if len(dead) > 0 {
			j.say("hca.ucx-unusable", finding.Error, n.h.Name, set, finding.Finding{
				Seen: "takes " + strings.Join(dead, ", "), Wanted: cmpOr(good, "usable ports"),
				Why: "UCX cannot use it", Hint: ucxHint(good),
			})
		}
		if len(tcp) > 0 && len(n.use) > 0 {
			j.say("gate.ucx-netdev", finding.Warning, n.h.Name, set, finding.Finding{
				Seen: "names the network interface " + strings.Join(tcp, ", "), Wanted: cmpOr(good, "RDMA devices only"),
				Why: "an interface is for UCX's tcp: it may carry the data", Hint: ucxHint(good),
			})
		}
	}
}

func ucxHint(good string) string {
	if good == "" {
		return ""
	}
	return "UCX_NET_DEVICES=" + good
}

func (j *judging) sayPortless(set Setting, host, item string) {
	j.say("hca.ucx-port", finding.Error, host, set, finding.Finding{
		Seen: item + " has no port", Wanted: item + ":1",
		Why: "UCX's name of an RDMA device has its port; without it the name matches nothing", Hint: strings.Replace(set.Name+"="+set.Value, item, item+":1", 1),
	})
}

// rdmaName says whether a name looks like an RDMA device's and not like a
// netdev's: a driver's own, or udev's (rocep…, ibp…; an interface's is ibp…d…).
func rdmaName(name string) bool {
	if strings.HasPrefix(name, "rocep") || strings.HasPrefix(name, "roceP") || strings.HasPrefix(name, "ibp") && !strings.Contains(name, "d") {
		return true
	}
	return slices.ContainsFunc(topology.Drivers(), func(d topology.Driver) bool {
		return slices.ContainsFunc(d.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	})
}

// rankWords are names of variables that differ from rank to rank.
var rankWords = []string{"LOCAL_RANK", "SLURM_LOCALID", "SLURM_PROCID", "OMPI_COMM_WORLD", "PMI_RANK", "PMIX_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD", "PALS_LOCAL_RANKID", "$RANK", "${RANK"}

func judgePerRank(j *judging, set Setting) {
	if set.Name != "NCCL_IB_HCA" {
		return
	}
	if slices.ContainsFunc(rankWords, func(w string) bool { return strings.Contains(set.Value, w) }) {
		j.say("hca.per-rank", finding.Error, set.Host, set, finding.Finding{
			Seen: "a different device per rank", Wanted: "one list of all devices of the node, the same for every rank",
			Why: "NCCL builds its rings from the node's devices; ranks that see different ones fail or fall to one NIC", Hint: "list all: NCCL_IB_HCA='=mlx5_0,mlx5_1,…' (per-rank choice is for UCX_NET_DEVICES)",
		})
	}
}

var gidPins = []string{"NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "MV2_DEFAULT_GID_INDEX", "NVSHMEM_IB_GID_INDEX", "FI_VERBS_GID_IDX"}

func judgeGIDPin(j *judging, set Setting) {
	if !slices.Contains(gidPins, set.Name) || variable(set.Value) {
		return
	}
	n64, exact := ncclInt(set.Value)
	if !exact || n64 < 0 {
		return
	}
	idx := int(n64)
	for _, n := range j.nodesOf(set) {
		var wrong []string
		roce := false
		for _, p := range n.ports {
			// ports that the pin would be used on: up, RoCE, and taken by the user's own list
			if p.family != topology.Verbs || !p.roce() || p.rejectID != "" && p.rejectID != "hca.gid" || !j.userTakes(n, p, set.Name) {
				continue
			}
			roce = true
			why := j.s.wrongAt(p, idx)
			if why == "" && set.Name == "UCX_IB_GID_INDEX" && p.hca.Driver == "rxe" && !globalIPv6At(p, idx) {
				why = fmt.Sprintf("index %d is no global IPv6 address: UCX's wire-up over rxe hangs on it", idx)
			}
			if why != "" {
				wrong = append(wrong, p.name()+": "+why)
			}
		}
		if len(wrong) > 0 {
			j.say("gid.pinned", finding.Error, n.h.Name, set, finding.Finding{
				Seen: strings.Join(wrong[:min(len(wrong), 6)], "; "), Wanted: j.s.want.text() + " at that index on every port",
				Why: "connections from that port fail or leave the fabric", Hint: pinHint(n, set.Name),
			})
		}
		if !roce && len(n.use) > 0 && set.Name == "NCCL_IB_GID_INDEX" {
			j.say("gid.no-roce", finding.Note, n.h.Name, set, finding.Finding{Seen: "no RoCE port on this host", Wanted: "", Why: "the index has no meaning on InfiniBand (NCCL ignores it there since 2.22)", Hint: "unset it"})
		}
	}
}

// globalIPv6At says whether a port's GID of that index is what UCX needs on rxe.
func globalIPv6At(p *port, idx int) bool {
	return p.p.GIDUnreadable != "" || slices.ContainsFunc(p.p.GIDs, func(g topology.GID) bool { return g.Index == idx && g.Kind == topology.GIDIPv6 })
}

// userTakes says whether the user's device list for the same library takes a port.
func (j *judging) userTakes(n *node, p *port, pin string) bool {
	for _, set := range j.s.settings(n) {
		switch {
		case strings.HasPrefix(pin, "NCCL_") && set.Name == "NCCL_IB_HCA" && !variable(set.Value):
			return parseFilter(set.Value).takes(p.hca.Name, p.p.Number)
		case strings.HasPrefix(pin, "UCX_") && set.Name == "UCX_NET_DEVICES" && !variable(set.Value) && set.Value != "all" && !strings.Contains(set.Value, "["):
			return slices.Contains(strings.Split(set.Value, ","), p.name())
		}
	}
	return true
}

// wrongAt says why index idx cannot be used on a port; "" it can.
func (s *state) wrongAt(p *port, idx int) string {
	if p.p.GIDUnreadable != "" {
		return "" // nothing can be said
	}
	for _, g := range p.p.GIDs {
		if g.Index != idx {
			continue
		}
		if why := s.want.judgeGID(g, p); why != "" {
			return fmt.Sprintf("index %d %s (%s)", idx, why, gidText(g))
		}
		return ""
	}
	if len(p.p.GIDs) == 0 && p.node.h.XML {
		return ""
	}
	return fmt.Sprintf("index %d is empty", idx)
}

func pinHint(n *node, name string) string {
	var ps []*port
	for _, p := range n.use {
		if p.gid != nil {
			ps = append(ps, p)
		}
	}
	if len(ps) == 0 {
		return "give the port's netdev an address"
	}
	if idx, ok := commonIndex(ps); ok {
		return fmt.Sprintf("%s=%d, or unset it where the library chooses by itself", name, idx)
	}
	return "unset it and let the library choose per port: " + gidTable(ps)
}

func judgeRange(j *judging, set Setting) {
	if set.Name != "NCCL_IB_ADDR_RANGE" && set.Name != "NVSHMEM_IB_ADDR_RANGE" || variable(set.Value) || set.Value == "" {
		return
	}
	pre, err := netip.ParsePrefix(set.Value)
	if err != nil {
		j.say("gid.range-form", finding.Error, set.Host, set, finding.Finding{Seen: "not one address range", Wanted: "ADDRESS/LENGTH, one only", Why: "NCCL ignores it silently", Hint: "NCCL_IB_ADDR_RANGE=10.10.0.0/16"})
		return
	}
	family := "AF_INET"
	for _, o := range j.all {
		if o.Name == strings.TrimSuffix(set.Name, "RANGE")+"FAMILY" {
			family = o.Value
		}
	}
	if pre.Addr().Is6() != (family == "AF_INET6") {
		j.say("gid.range-family", finding.Error, set.Host, set, finding.Finding{
			Seen: "the family in force is " + family, Wanted: "a range of that family", Why: "no address can be in it",
			Hint: strings.TrimSuffix(set.Name, "RANGE") + "FAMILY=" + map[bool]string{true: "AF_INET6", false: "AF_INET"}[pre.Addr().Is6()],
		})
	}
}

var classNames = []string{"NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS", "NVSHMEM_IB_TRAFFIC_CLASS"}

// dscpNumbers are code points that fabrics are set up for (24, 26, 31, 34, 46,
// 48): as a traffic class byte none of them is in use anywhere public.
var dscpNumbers = []int{24, 26, 31, 34, 46, 48}

func judgeTC(j *judging, set Setting) {
	if !slices.Contains(classNames, set.Name) && set.Name != "NCCL_IB_FIFO_TC" || variable(set.Value) {
		return
	}
	n64, exact := ncclInt(set.Value)
	if !exact || n64 < 0 || n64 > 255 {
		return
	}
	tc := int(n64)
	q := j.s.in.Profile.Fabric.QoS
	roce := len(j.s.nodes) == 0 && j.s.in.Profile.Fabric.LinkLayer != "infiniband" || slices.ContainsFunc(j.s.nodes, (*node).anyRoCE)
	if !roce {
		if tc != 0 {
			j.say("qos.tc-on-infiniband", finding.Note, set.Host, set, finding.Finding{Seen: "no RoCE port here", Wanted: "the service level", Why: "the traffic class has no effect on InfiniBand", Hint: "set the SL where the fabric has one"})
		}
		return
	}
	if set.Name == "NCCL_IB_FIFO_TC" {
		return
	}
	mixed := slices.Contains(dscpNumbers, tc)
	if q != nil {
		mixed = tc == q.RDMA.DSCP && tc != 0
	}
	switch {
	case mixed:
		want := tc << 2
		wanted := fmt.Sprintf("%d, or %d with ECN", want, want|2)
		hint := fmt.Sprintf("%s=%d", set.Name, want|2)
		if q != nil {
			wanted, hint = strconv.Itoa(q.RDMA.TC()), fmt.Sprintf("%s=%d", set.Name, q.RDMA.TC())
		}
		j.say("qos.dscp-for-tc", finding.Error, set.Host, set, finding.Finding{
			Seen: fmt.Sprintf("%d is a DSCP; as a traffic class it marks DSCP %d", tc, tc>>2), Wanted: wanted,
			Why: "the variable takes the whole traffic class byte, DSCP<<2 | ECN: the traffic is not in the lossless class", Hint: hint,
		})
		return
	case q != nil && tc>>2 != q.RDMA.DSCP:
		j.say("qos.not-the-plan", finding.Warning, set.Host, set, finding.Finding{
			Seen: fmt.Sprintf("marks DSCP %d", tc>>2), Wanted: fmt.Sprintf("DSCP %d (%d), as profile %s says", q.RDMA.DSCP, q.RDMA.TC(), j.s.in.Profile.Name),
			Why: "the traffic is not in the class that the fabric keeps for RDMA", Hint: fmt.Sprintf("%s=%d", set.Name, q.RDMA.TC()),
		})
	}
	for _, n := range j.nodesOf(set) {
		for _, p := range n.use {
			if g := p.p.GlobalTClass; g != nil && p.roce() && *g != tc {
				j.say("qos.global-tclass", finding.Error, n.h.Name, set, finding.Finding{
					Seen: fmt.Sprintf("%s has Global tclass=%d (sys/class/infiniband/%s/tc/%d/traffic_class)", p.name(), *g, p.hca.Name, p.p.Number), Wanted: "the same value, or none for the port",
					Why: "the driver replaces the class of every queue pair by the port's: this setting does nothing", Hint: fmt.Sprintf("set %s=%d, or echo -1 > /sys/class/infiniband/%s/tc/%d/traffic_class", set.Name, *g, p.hca.Name, p.p.Number) + finding.ForRDMA,
				})
			}
		}
		j.s.judgeClassOn(n, set.Name+"="+set.Value, tc)
	}
}

func judgeInterface(j *judging, set Setting) {
	switch set.Name {
	case "NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME":
	case "GLOO_SOCKET_IFNAME":
		judgeGloo(j, set)
		return
	default:
		return
	}
	if variable(set.Value) || set.Value == "" {
		return
	}
	f := parseFilter(set.Value)
	nodes := j.nodesOf(set)
	if len(nodes) == 0 {
		for _, it := range f.items {
			if !f.exclude && (virtualName(it.name) || it.name == "lo") {
				j.say("bootstrap.virtual", finding.Error, set.Host, set, finding.Finding{
					Seen: it.name + " is a virtual interface of one host", Wanted: "the interface that the hosts share",
					Why: "it reaches no other host", Hint: "name the management or fabric interface exactly: NCCL_SOCKET_IFNAME='=eth0'",
				})
				return
			}
		}
		return
	}
	for _, n := range nodes {
		var taken, virtual []string
		for _, d := range n.h.Netdevs {
			if !f.takes(d.Name, -1) || d.OperState == "down" || len(d.Addrs) == 0 {
				continue
			}
			taken = append(taken, d.Name)
			if virtualDev(&d) {
				virtual = append(virtual, d.Name)
			}
		}
		good := ""
		if d, _ := j.s.bootstrapDev(n); d != nil {
			good = d.Name
		}
		hint := ""
		if good != "" {
			hint = set.Name + "='=" + good + "'"
		}
		switch {
		case len(n.h.Netdevs) == 0:
		case len(taken) == 0:
			j.say("bootstrap.takes-nothing", finding.Error, n.h.Name, set, finding.Finding{
				Seen: "no interface that is up matches", Wanted: cmpOr(good, "an interface that is up"),
				Why: "NCCL stops: no socket interface found", Hint: hint,
			})
		case len(virtual) > 0:
			j.say("bootstrap.virtual", finding.Warning, n.h.Name, set, finding.Finding{
				Seen: "takes " + strings.Join(virtual, ", "), Wanted: cmpOr(good, "interfaces that the hosts share"),
				Why: "a virtual interface of one host reaches no other: the job hangs at its start", Hint: hint,
			})
		}
	}
}

func judgeGloo(j *judging, set Setting) {
	if variable(set.Value) {
		return
	}
	if strings.ContainsAny(set.Value, "=^") {
		j.say("bootstrap.gloo-form", finding.Error, set.Host, set, finding.Finding{Seen: "'=' or '^' is part of the name", Wanted: "exact interface names", Why: "Gloo knows only exact names", Hint: "GLOO_SOCKET_IFNAME=" + strings.TrimLeft(set.Value, "=^")})
		return
	}
	for _, n := range j.nodesOf(set) {
		for it := range strings.SplitSeq(set.Value, ",") {
			if len(n.h.Netdevs) > 0 && n.netdev(it) == nil {
				j.say("bootstrap.gloo-absent", finding.Error, n.h.Name, set, finding.Finding{Seen: "no interface " + it, Wanted: "exact interface names", Why: "Gloo matches no prefixes: it stops", Hint: ""})
			}
		}
	}
}

func virtualName(name string) bool {
	for _, p := range []string{"docker", "veth", "virbr", "cni", "flannel", "cali", "br-", "tun", "tap", "lxc", "podman", "kube-"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

func virtualDev(d *topology.Netdev) bool {
	return d.Kind == "veth" || d.Kind == "loopback" || d.Kind == "tun" || d.Name == "lo" || virtualName(d.Name)
}

// judgeTCP finds settings that take the job off the fabric although it has one.
func judgeTCP(j *judging, set Setting) {
	rdma := j.s.in.Profile.Fabric.LinkLayer != "" || slices.ContainsFunc(j.s.nodes, func(n *node) bool { return len(n.use) > 0 })
	if !rdma && len(j.s.nodes) > 0 {
		return
	}
	sev := finding.Warning
	if rdma {
		sev = finding.Error
	}
	say := func(seen, hint string) {
		j.say("gate.tcp-chosen", sev, set.Host, set, finding.Finding{Seen: seen, Wanted: "RDMA, which these hosts have", Why: "all data between hosts goes over TCP", Hint: hint})
	}
	v := strings.ToLower(set.Value)
	words := strings.Split(v, ",")
	only := func(allowed ...string) bool {
		for _, w := range words {
			if !slices.Contains(allowed, w) {
				return false
			}
		}
		return true
	}
	switch set.Name {
	case "NCCL_IB_DISABLE":
		if n, ok := ncclInt(v); ok && n != 0 {
			say("NCCL's RDMA is off", "unset NCCL_IB_DISABLE")
		}
	case "NCCL_NET":
		if v == "socket" {
			say("NCCL is told to use sockets", "unset NCCL_NET, or NCCL_NET=IB")
		}
	case "UCX_TLS":
		if ucxOnlyTCP(v) {
			say("UCX's only way between hosts is tcp", "UCX_TLS=^tcp")
		}
		if i := strings.IndexByte(v, '^'); i > 0 {
			j.say("value.ucx-tls-form", finding.Error, set.Host, set, finding.Finding{Seen: "'^' inside the list", Wanted: "'^' before the whole list", Why: "it denies the whole list and has no meaning inside", Hint: ""})
		}
		if v == "rc" || v == "rc_x" || v == "rc_mlx5" || v == "dc" || v == "dc_x" || v == "ud" {
			j.say("value.ucx-tls-alone", finding.Warning, set.Host, set, finding.Finding{Seen: "no shared memory and no self", Wanted: v + ",sm,self", Why: "ranks of one node talk through the network card, or do not start", Hint: "UCX_TLS=" + v + ",sm,self (and cuda with GPUs)"})
		}
	case "UCX_NET_DEVICES":
		if len(j.s.nodes) == 0 && !variable(v) && v != "all" && !strings.HasPrefix(v, "^") && !strings.Contains(v, ":") && !slices.ContainsFunc(words, rdmaName) {
			say("names network interfaces only", "name RDMA devices: mlx5_0:1")
		}
	case "OMPI_MCA_pml":
		if v == "ob1" || v == "^ucx" || v == "ob1,ucx" {
			say("Open MPI is told not to use UCX", "OMPI_MCA_pml=ucx")
		}
	case "OMPI_MCA_btl":
		if !strings.HasPrefix(v, "^") && slices.Contains(words, "tcp") && only("tcp", "self", "sm", "vader") {
			j.say("gate.btl-tcp", finding.Warning, set.Host, set, finding.Finding{Seen: "the btl list has no RDMA", Wanted: "pml ucx", Why: "without pml ucx all data between hosts goes over TCP; with it this list is not used", Hint: "drop it, and set OMPI_MCA_pml=ucx"})
		}
		if i := strings.IndexByte(v, '^'); i > 0 {
			j.say("value.mca-form", finding.Error, set.Host, set, finding.Finding{Seen: "'^' inside the list", Wanted: "'^' before the whole list", Why: "Open MPI refuses a mixed list", Hint: "OMPI_MCA_btl=" + set.Value[i:]})
		}
	case "FI_PROVIDER", "I_MPI_OFI_PROVIDER":
		if v == "tcp" || v == "sockets" || v == "tcp;ofi_rxm" {
			say("libfabric's provider is "+v, "unset it, or name the RDMA provider (mlx, verbs, psm3, efa, cxi)")
		}
	}
}

// ucxOnlyTCP reports whether a value of UCX_TLS leaves nothing but TCP between
// hosts.
func ucxOnlyTCP(value string) bool {
	tcp := false
	for w := range strings.SplitSeq(strings.ToLower(value), ",") {
		switch w {
		case "tcp":
			tcp = true
		case "self", "sm", "shm", "mm", "posix", "sysv", "cma", "cuda", "cuda_copy", "cuda_ipc", "gdr_copy", "rocm":
		default:
			return false
		}
	}
	return tcp
}

func judgeGDR(j *judging, set Setting) {
	if set.Name != "NCCL_NET_GDR_LEVEL" && set.Name != "NCCL_IB_GDR_LEVEL" {
		return
	}
	if set.Value == "LOC" || set.Value == "0" {
		j.say("gdr.off", finding.Warning, set.Host, set, finding.Finding{Seen: "LOC: never", Wanted: "a level that lets each GPU reach its nearest NIC", Why: "GPUDirect RDMA is off: every byte goes through host memory", Hint: "unset it"})
		return
	}
	for _, n := range j.nodesOf(set) {
		if len(n.h.GPUs) > 0 && j.s.gdrPossible(n) == no {
			seen, wanted, hint := n.noPeerMemory()
			j.say("gdr.no-peer-memory", finding.Warning, n.h.Name, set, finding.Finding{Seen: seen, Wanted: wanted, Why: "the level has no effect: GPUDirect RDMA is not possible", Hint: hint})
		}
	}
}

func judgeLog(j *judging, set Setting) {
	if set.Name != "NCCL_DEBUG_FILE" || variable(set.Value) || set.Value == "" || strings.HasPrefix(set.Value, "/dev/") {
		return
	}
	if !strings.Contains(strings.ReplaceAll(set.Value, "%%", ""), "%p") {
		ext := path.Ext(set.Value)
		j.say("log.overwritten", finding.Warning, set.Host, set, finding.Finding{
			Seen: "no %p in the name", Wanted: "a file per process", Why: "all ranks of a node overwrite one file",
			Hint: "NCCL_DEBUG_FILE=" + strings.TrimSuffix(set.Value, ext) + ".%h.%p" + ext,
		})
	}
}

// judgeTogether finds settings that contradict each other.
func (s *state) judgeTogether() {
	get := func(name string) (Setting, int, bool) {
		for _, set := range s.in.Job.Settings {
			if set.Name == name && !variable(set.Value) {
				if n, ok := ncclInt(set.Value); ok {
					return set, int(n), true
				}
				return set, 0, false
			}
		}
		return Setting{}, 0, false
	}
	nccl, ntc, okN := get("NCCL_IB_TC")
	_, utc, okU := get("UCX_IB_TRAFFIC_CLASS")
	if okN && okU && ntc>>2 != utc>>2 {
		s.add(finding.Finding{
			ID: "qos.libraries-differ", Severity: finding.Warning, Subject: "NCCL_IB_TC",
			Seen:   fmt.Sprintf("NCCL_IB_TC=%d (DSCP %d) beside UCX_IB_TRAFFIC_CLASS=%d (DSCP %d)%s", ntc, ntc>>2, utc, utc>>2, inPlace(nccl.Where)),
			Wanted: "one DSCP for both", Why: "one of the two is not in the fabric's RDMA class", Hint: "set both to the fabric's traffic class",
		})
	}
	if g, _, ok := get("UCX_IB_GID_INDEX"); ok {
		if i := slices.IndexFunc(s.in.Job.Settings, func(o Setting) bool { return o.Name == "UCX_IB_ROCE_SUBNETS" && o.Value != "all" }); i >= 0 {
			s.add(finding.Finding{
				ID: "gid.ucx-both", Severity: finding.Error, Subject: "UCX_IB_GID_INDEX", Seen: "UCX_IB_GID_INDEX=" + g.Value + " with UCX_IB_ROCE_SUBNETS=" + s.in.Job.Settings[i].Value,
				Wanted: "one of the two", Why: "UCX refuses both together", Hint: "unset UCX_IB_GID_INDEX",
			})
		}
	}
}

func inPlace(where string) string {
	if where == "" {
		return ""
	}
	return " (" + where + ")"
}
