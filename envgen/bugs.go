package envgen

import (
	"slices"
	"strings"

	"fabrun/profiles"
	"fabrun/topology/finding"
)

// knownBugs notes the known bugs of the library versions that the ranks on n load,
// where the host and the ranks' environment are such that they can bite.
func (s *state) knownBugs(n *node, vars []Var) {
	versions := s.bugVersions(n)
	if len(versions) == 0 || len(n.use) == 0 {
		return
	}
	bugs, err := profiles.BugsOf(func(b profiles.Bug) bool { v := versions[b.Library]; return v != "" && HasBug(b, v) })
	if err != nil {
		return // the test of the file says so
	}
	for _, b := range bugs {
		v := versions[b.Library]
		if !s.bites(b.When, n, vars) {
			continue
		}
		f := finding.Finding{
			ID: "version.known-bug", Severity: finding.Note, Host: n.h.Name, Subject: libraryNames[b.Library] + " " + v,
			Seen: b.Effect, Why: "a known bug of this version, told at " + b.Source, Hint: b.Advice,
		}
		if b.FixedIn != "" {
			f.Wanted = libraryNames[b.Library] + " " + b.FixedIn + " or later"
		}
		s.add(f)
	}
}

var libraryNames = map[string]string{"nccl": "NCCL", "rccl": "RCCL", "ucx": "UCX", "openmpi": "Open MPI", "aws-ofi-nccl": "aws-ofi-nccl"}

// bugVersions are the libraries that the job uses on n, by their names in the list of
// bugs; a version that is not known is not there.
func (s *state) bugVersions(n *node) map[string]string {
	out := map[string]string{}
	if s.usesNCCL() && n.v.NCCL != "" {
		name := "nccl"
		if hasSoftware(n.h, "rccl") {
			name = "rccl"
			if hasSoftware(n.h, "nccl") {
				name = "" // which of the two is loaded cannot be told
			}
		}
		out[name] = n.v.NCCL
	}
	if strings.Contains(n.v.NetPlugin, "Libfabric") && !s.in.Job.InContainer {
		out["aws-ofi-nccl"] = oneVersion(n.h.Software, "nccl-plugin")
	}
	if s.mpiLauncher() {
		out["ucx"] = n.v.UCX
		if kind, v, ok := strings.Cut(n.v.MPI, " "); ok && kind == "openmpi" {
			out["openmpi"] = v
		}
	}
	return out
}

// HasBug reports whether a version is known to have a bug.
func HasBug(b profiles.Bug, version string) bool {
	if len(parseVersion(version)) < 2 {
		return false // 'NCCL 2' may be anything
	}
	switch {
	case b.From != "" && atLeast(version, b.From) != yes:
		return false
	case b.FixedIn != "":
		return atLeast(version, b.FixedIn) == no
	case b.Last != "":
		return atLeast(b.Last, version) == yes
	}
	return true
}

// bites reports whether a bug's condition holds on a host; what is not known does not.
func (s *state) bites(w profiles.BugWhen, n *node, vars []Var) bool {
	any := func(ok func(*port) bool) bool { return slices.ContainsFunc(n.use, ok) }
	name, value, exact := strings.Cut(w.Set, "=")
	i := indexVar(vars, name)
	switch {
	case w.LinkLayer != "" && !any(func(p *port) bool { return strings.EqualFold(p.p.LinkLayer, w.LinkLayer) }),
		w.Driver != "" && !any(func(p *port) bool { return p.hca.Driver == w.Driver }),
		w.Bond && !any(func(p *port) bool { return p.hca.Bond }),
		w.Arch != "" && n.h.CPU.Arch != w.Arch,
		w.KernelFrom != "" && atLeast(n.h.Kernel, w.KernelFrom) != yes,
		w.GPU && len(n.h.GPUs) == 0,
		w.Container && !s.in.Job.InContainer && n.h.Container.Kind == "",
		len(n.use) < w.MinRails,
		w.Set != "" && (i < 0 || exact && vars[i].Value != value):
		return false
	}
	return true
}
