package envgen

import (
	"path"
	"slices"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

func (n *node) hasFamily(f topology.Family) bool {
	return slices.ContainsFunc(n.use, func(p *port) bool { return p.family == f })
}

// ncclGate forbids NCCL's fallback to sockets, which is the only way to make
// it an error; only under --strict, since a wrong name ends the job.
func ncclGate(s *state, n *node) []Var {
	s.pluginMissing(n)
	if !s.in.Job.Strict || !s.usesNCCL() {
		return nil
	}
	var out []Var
	net, why := "", ""
	switch {
	case s.isSet(n, "NCCL_NET", "NCCL_IB_DISABLE", "NCCL_NET_PLUGIN"): // the user's choice, judged as such
	case n.v.NetPlugin != "":
		net, why = n.v.NetPlugin, "the network plugin found"
	case n.pollara(): // its plugin's name differs by where it comes from
	case len(n.verbsPorts(true)) > 0 && !s.in.Job.InContainer:
		net, why = "IB", "NCCL's own RDMA transport"
	}
	if net != "" && atLeast(n.v.NCCL, "2.10") != no {
		out = append(out, Var{
			Name: "NCCL_NET", Value: net, Why: why + "; with it the job stops instead of falling to sockets", Evidence: []string{"--strict"},
			Rejected: []Alternative{{Value: "unset", Why: "NCCL would take sockets without a word"}}, IfWrong: "a name that no network has ends the job",
		})
	}
	if atLeast(n.v.NCCL, "2.30") == yes {
		out = append(out, Var{
			Name: "NCCL_IGNORE_NET_MISMATCH", Value: "0", Why: "ranks that see different numbers of NICs are an error", Evidence: []string{"--strict"},
			IfWrong: "a node with fewer NICs slows all down silently",
		})
	}
	return out
}

// pluginMissing says that NCCL goes over sockets for want of its plugin: it can
// use neither EFA nor Slingshot by itself.
func (s *state) pluginMissing(n *node) {
	if !s.usesNCCL() || n.v.NetPlugin != "" || len(n.h.Software) == 0 || s.in.Job.InContainer || hasSoftware(n.h, "nccl-plugin") {
		return
	}
	for _, p := range n.use {
		d := topology.DriverNamed(p.hca.Driver)
		if d.NCCLPlugin == "" {
			continue
		}
		f := finding.Finding{
			ID: "gate.efa-plugin", Severity: finding.Error, Host: n.h.Name, Subject: "NCCL", Seen: "EFA, and no network plugin for NCCL",
			Wanted: "the plugin " + d.NCCLPlugin + " (libnccl-net.so)", Why: "NCCL itself cannot use EFA: it goes over TCP", Hint: "install aws-ofi-nccl, or use an image that has it",
		}
		if d.Family == topology.CXI {
			f.ID, f.Seen = "gate.cxi-plugin", "Slingshot, and no network plugin for NCCL"
			f.Why = "NCCL itself cannot use Slingshot: it goes over TCP on " + cmpOr(p.p.Netdev, "its interfaces")
		}
		s.add(f)
		return
	}
}

func (n *node) pollara() bool {
	return n.rccl() && slices.ContainsFunc(n.verbsPorts(true), func(p *port) bool { return p.hca.Driver == "ionic" })
}

// pollaraPlugin has RCCL use what AMD made for its own NIC (ionic). AMD's plugin is
// called librccl-anp.so, and RCCL looks for librccl-net.so by itself
// (ROCm/amd-anp). From ROCm 7.2.1 on RCCL has it built in and asks for
// RCCL_AINIC_ROCE (ROCm/rccl pull requests 2078 and 2120); an older RCCL does not
// read that name, which costs nothing.
func pollaraPlugin(s *state, n *node) []Var {
	if !s.usesNCCL() || !n.pollara() || s.in.Job.InContainer || s.isSet(n, "NCCL_NET", "NCCL_NET_PLUGIN") {
		return nil
	}
	for _, sw := range n.h.Software {
		if sw.Kind == "nccl-plugin" && path.Base(sw.Path) == "librccl-anp.so" {
			value := path.Base(sw.Path)
			if dir := path.Dir(sw.Path); !strings.HasPrefix(dir, "usr/") && !strings.HasPrefix(dir, "opt/rocm") {
				value = "/" + sw.Path // not where the loader looks
			}
			return []Var{{
				Name: "NCCL_NET_PLUGIN", Value: value, Evidence: []string{"/" + sw.Path, "driver ionic"}, Why: "AMD's network plugin for this NIC; RCCL looks for librccl-net.so by itself",
				IfWrong: "RCCL drives the NIC by plain verbs: it works, and slower",
			}}
		}
	}
	if len(n.h.Software) == 0 || hasSoftware(n.h, "nccl-plugin") {
		return nil // not looked for, or one that RCCL takes by itself
	}
	if atLeast(n.v.NCCL, "2.27.7") == no {
		s.add(finding.Finding{
			ID: "gate.pollara-plugin", Severity: finding.Warning, Host: n.h.Name, Subject: "RCCL", Seen: "AMD Pollara (ionic), RCCL " + n.v.NCCL + ", and no plugin for it",
			Wanted: "librccl-anp.so (ROCm/amd-anp), or RCCL of ROCm 7.2.1 or later, which has it built in", Why: "RCCL drives the NIC by plain verbs: it works, and slower", Hint: "install amd-anp, or a later ROCm",
		})
		return nil
	}
	return []Var{{
		Name: "RCCL_AINIC_ROCE", Value: "1", Evidence: []string{"driver ionic", "no librccl-anp.so was found"}, Why: "RCCL of ROCm 7.2.1 and later has AMD's plugin for this NIC built in, and uses it when told so",
		IfWrong: "RCCL drives the NIC by plain verbs: it works, and slower",
	}}
}

// libfabricGate names the provider where there is only one right one, so that
// its absence is an error and not TCP.
func libfabricGate(s *state, n *node) []Var {
	if !s.mpiLauncher() || s.isSet(n, "FI_PROVIDER", "I_MPI_OFI_PROVIDER", "I_MPI_FABRICS") {
		return nil
	}
	provider := ""
	var evidence []string
	switch {
	case n.hasFamily(topology.EFA):
		provider, evidence = "efa", []string{"driver efa"}
	case n.v.MPIKind != "intelmpi":
	case slices.ContainsFunc(n.verbsPorts(false), func(p *port) bool { return p.hca.Driver == "mlx5" }) && (n.v.UCX != "" || hasSoftware(n.h, "ucx")):
		// Intel MPI's mlx provider is a layer over UCX: the UCX variables hold too
		provider, evidence = "mlx", []string{"driver mlx5", "UCX " + cmpOr(n.v.UCX, "found")}
	case s.in.Job.Strict && len(n.verbsPorts(false)) > 0:
		provider, evidence = "verbs", []string{"--strict"}
	case len(n.verbsPorts(false)) > 0:
		s.add(finding.Finding{
			ID: "gate.intelmpi", Severity: finding.Note, Host: n.h.Name, Subject: "I_MPI_OFI_PROVIDER", Seen: "not set, and UCX was not found here",
			Wanted: "mlx (needs UCX) or verbs", Why: "Intel MPI chooses by itself and may fall to tcp", Hint: "I_MPI_DEBUG=4 prints the provider; --strict forces verbs",
		})
	}
	if provider == "" {
		return nil
	}
	why := "the provider for these devices; a missing one ends the job instead of taking tcp"
	if n.v.MPIKind == "intelmpi" {
		return []Var{
			{Name: "I_MPI_FABRICS", Value: "shm:ofi", Why: "shared memory inside a node, libfabric between nodes", Evidence: evidence, IfWrong: "dapl, tmi and ofa left Intel MPI with 2019"},
			{Name: "I_MPI_OFI_PROVIDER", Value: provider, Why: why, Evidence: evidence, IfWrong: "the job stops, or goes over TCP"},
		}
	}
	if n.v.MPIKind == "openmpi" || n.v.MPIKind == "mpich" || n.v.MPIKind == "" {
		return []Var{{Name: "FI_PROVIDER", Value: provider, Why: why, Evidence: evidence, IfWrong: "the job stops, or goes over TCP"}}
	}
	return nil
}

// libfabricGID says the GID to libfabric's verbs provider, whose default is
// index 0: link-local and RoCE v1 on most cards.
func libfabricGID(s *state, n *node) []Var {
	if !n.anyRoCE() || n.v.MPIKind != "mpich" && n.v.MPIKind != "intelmpi" || !s.mpiLauncher() {
		return nil
	}
	return s.zeroDefault(n, "FI_VERBS_GID_IDX", "libfabric's verbs provider")
}

// zeroDefault pins an index for a library that would take 0.
func (s *state) zeroDefault(n *node, name, who string) []Var {
	if s.zeroGID.failed != "" {
		s.add(finding.Finding{
			ID: "gid.no-common", Severity: finding.Error, Host: n.h.Name, Subject: name, Seen: "no index is right on every port: " + s.zeroGID.failed,
			Wanted: "one index for every port", Why: who + " takes one index for all, by default 0", Hint: "give all ports the same kinds of addresses",
		})
		return nil
	}
	var out []Var
	for _, v := range s.zeroGID.vars {
		v.Name = name
		v.Why = "the right GID on every port; " + who + " would take index 0"
		v.IfWrong = "connections fail, or leave unrouted"
		out = append(out, v)
	}
	return out
}

// mvapich2 covers MVAPICH2 (its CH3 channel); from 3.0 on MVAPICH is an MPICH
// over UCX or libfabric, and their variables hold.
func mvapich2(s *state, n *node) []Var {
	ps := n.verbsPorts(false)
	_, version, _ := strings.Cut(n.v.MPI, " ")
	if n.v.MPIKind != "mvapich" || atLeast(version, "3.0") == yes || len(ps) == 0 {
		return nil
	}
	var names []string
	for _, p := range ps {
		if !slices.Contains(names, p.hca.Name) {
			names = append(names, p.hca.Name)
		}
	}
	out := []Var{{
		Name: "MV2_IBA_HCA", Value: strings.Join(names, ":"), Why: "the devices that are up and on the fabric", Evidence: portEvidence(ps), Rejected: n.rejectedPorts(),
		IfWrong: "the job stops: MVAPICH2 has no way but these devices",
	}}
	if n.anyRoCE() {
		out = append(out, Var{Name: "MV2_USE_RoCE", Value: "1", Why: "the ports are Ethernet", Evidence: portEvidence(ps), IfWrong: "MVAPICH2 looks for a subnet manager and stops"})
		if s.want.version == roceV2 {
			out = append(out, Var{Name: "MV2_USE_ROCE_MODE", Value: "2", Why: "RoCE v2", Evidence: []string{"the chosen GIDs are RoCE v2"}, IfWrong: "packets that routers do not forward"})
		}
		out = append(out, s.zeroDefault(n, "MV2_DEFAULT_GID_INDEX", "MVAPICH2")...)
	}
	if q := s.qos(); q != nil && q.sl != "" {
		out = append(out, Var{
			Name: "MV2_DEFAULT_SERVICE_LEVEL", Value: q.sl, Why: "the service level of the profile's RDMA class", Evidence: []string{"profile " + s.in.Profile.Name},
			IfWrong: "another priority or virtual lane",
		})
	}
	return out
}

// nvshmem says to NVSHMEM what NCCL is told; its choice of NIC by topology is
// left alone, since a list of devices turns it off.
func nvshmem(s *state, n *node) []Var {
	ps := n.verbsPorts(false)
	if !hasSoftware(n.h, "nvshmem") || len(ps) == 0 || !s.usesNCCL() {
		return nil
	}
	var out []Var
	if prefix := commonPrefix(ps); prefix != "" && !strings.HasPrefix(ps[0].hca.Name, "mlx5") {
		out = append(out, Var{
			Name: "NVSHMEM_HCA_PREFIX", Value: prefix, Why: "the devices are not called mlx5…, and NVSHMEM's GPU-driven transports look for that name", Evidence: portEvidence(ps),
			IfWrong: "NVSHMEM finds no device",
		})
	}
	if n.anyRoCE() {
		out = append(out, s.zeroLikeNCCL()...)
	}
	return append(out, s.qosVars(n, "NVSHMEM_IB_TRAFFIC_CLASS", "NVSHMEM_IB_SL")...)
}

// zeroLikeNCCL is what NVSHMEM 3 must be told about GIDs: it chooses as NCCL
// 2.21 does, by the same words under its own prefix.
func (s *state) zeroLikeNCCL() []Var {
	ps := s.rocePorts()
	if len(ps) == 0 {
		return nil
	}
	vars, ok := s.ncclByWords(ps, portEvidence(ps))
	if !ok {
		var out []Var
		for _, v := range s.zeroGID.vars {
			v.Name, v.Why = "NVSHMEM_IB_GID_INDEX", "the right GID on every port; NVSHMEM's own choice would be another"
			out = append(out, v)
		}
		return out
	}
	for i := range vars {
		vars[i].Name = "NVSHMEM_" + strings.TrimPrefix(vars[i].Name, "NCCL_")
		vars[i].Why = strings.ReplaceAll(vars[i].Why, "NCCL", "NVSHMEM")
		vars[i].Rejected = nil
	}
	return vars
}

func commonPrefix(ps []*port) string {
	prefix := ps[0].hca.Name
	for _, p := range ps[1:] {
		for !strings.HasPrefix(p.hca.Name, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return strings.TrimRight(prefix, "0123456789")
}

// ncclLog asks for what the watcher reads, in a file per process. Where the
// user set any of it, all of it is theirs.
func ncclLog(s *state, n *node) []Var {
	if s.in.Job.LogDir == "" || !s.usesNCCL() {
		return nil
	}
	for _, name := range []string{"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"} {
		if !s.isSet(n, name) {
			continue
		}
		if name == "NCCL_DEBUG" {
			for _, set := range s.settings(n) {
				if set.Name == name && !strings.EqualFold(set.Value, "INFO") && !strings.EqualFold(set.Value, "TRACE") {
					s.add(finding.Finding{
						ID: "log.quiet", Severity: finding.Note, Host: n.h.Name, Subject: "NCCL_DEBUG", Seen: "NCCL_DEBUG=" + set.Value + inPlace(set.Where),
						Wanted: "INFO, or unset", Why: "NCCL does not say which network it took; counters judge", Hint: "unset it, and fabrun reads NCCL's log privately",
					})
				}
			}
		}
		return nil
	}
	why := "which network NCCL takes is seen only there; the job's own output stays as it is"
	return []Var{
		{Name: "NCCL_DEBUG", Value: "INFO", Why: why, Evidence: []string{"nobody set NCCL_DEBUG"}, IfWrong: "a fallback is seen by counters only"},
		{Name: "NCCL_DEBUG_SUBSYS", Value: "INIT,BOOTSTRAP,ENV,NET,GRAPH", Why: "GPUDirect and device lines are in NET and GRAPH", Evidence: []string{"nobody set NCCL_DEBUG_SUBSYS"}, IfWrong: "GPUDirect cannot be judged"},
		{Name: "NCCL_DEBUG_FILE", Value: path.Join(s.in.Job.LogDir, "nccl.%h.%p.log"), Why: "a private file per process", Evidence: []string{"nobody set NCCL_DEBUG_FILE"}, IfWrong: "the lines appear in the job's output, or ranks overwrite each other's"},
	}
}

func ucxLog(s *state, n *node) []Var {
	if s.in.Job.LogDir == "" || len(n.verbsPorts(false)) == 0 || s.isSet(n, "UCX_LOG_LEVEL", "UCX_LOG_FILE") {
		return nil
	}
	return []Var{
		{Name: "UCX_LOG_LEVEL", Value: "info", Why: "the transports of each connection are said only there", Evidence: []string{"nobody set UCX_LOG_LEVEL"}, IfWrong: "a fallback is seen by counters only"},
		{Name: "UCX_LOG_FILE", Value: path.Join(s.in.Job.LogDir, "ucx.%h.%p.log"), Why: "a private file per process", Evidence: []string{"nobody set UCX_LOG_FILE"}, IfWrong: "the lines appear in the job's output"},
	}
}

// otherFabrics says what is used by software of its own.
func (s *state) otherFabrics() {
	for _, n := range s.usedNodes() {
		switch {
		case n.hasFamily(topology.CXI):
			s.add(finding.Finding{
				ID: "hca.slingshot", Severity: finding.Note, Host: n.h.Name, Subject: "Slingshot", Seen: "cxi devices", Wanted: "",
				Why: "the vendor's libfabric provider uses them by itself; UCX is not for them", Hint: "NCCL needs the aws-ofi-nccl plugin built for cxi",
			})
		case n.hasFamily(topology.PSM):
			s.add(finding.Finding{
				ID: "hca.omni-path", Severity: finding.Note, Host: n.h.Name, Subject: "Omni-Path", Seen: "hfi1 or qib devices", Wanted: "",
				Why: "MPI uses them through PSM2 or libfabric by itself; UCX is not for them", Hint: "",
			})
		}
	}
}
