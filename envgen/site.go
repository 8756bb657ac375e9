package envgen

import (
	"fmt"
	"slices"
	"strings"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// SiteSettings are the variables that a host's configuration files set by
// themselves: nccl.conf (NAME=VALUE, nothing trimmed, '#' only as the first
// letter), ucx.conf (INI; sections hold only on some machines and are left
// out), and MCA parameter files (name = value). Earlier ones are the stronger.
func SiteSettings(h *topology.Host) []Setting {
	var out []Setting
	for _, f := range h.ConfigFiles {
		if unread(h, f.Kind) {
			continue
		}
		for i, line := range strings.Split(f.Text, "\n") {
			name, value, ok := configLine(f.Kind, strings.TrimSuffix(line, "\r"))
			if section(f.Kind, line) {
				break
			}
			if ok {
				out = append(out, Setting{Name: name, Value: value, Origin: FromSite, Host: h.Name, Where: fmt.Sprintf("/%s:%d", strings.TrimPrefix(f.Path, "/"), i+1)})
			}
		}
	}
	return out
}

// unread says whether the host's library does not read a kind of file: RCCL has
// files of its own (~/.rccl.conf and /etc/rccl.conf, src/misc/param.cc of
// ROCm/rccl) and never looks at NCCL's.
func unread(h *topology.Host, kind string) bool {
	return kind == "nccl" && usesRCCL(h) || kind == "rccl" && !usesRCCL(h)
}

// usesRCCL says whether a host's collectives library is AMD's.
func usesRCCL(h *topology.Host) bool {
	if len(h.GPUs) > 0 {
		return !slices.ContainsFunc(h.GPUs, func(g topology.GPU) bool { return g.Vendor != "amd" })
	}
	return hasSoftware(h, "rccl") && !hasSoftware(h, "nccl")
}

func (n *node) rccl() bool { return usesRCCL(n.h) }

// unreadFiles names settings in files that the host's library does not read.
func (s *state) unreadFiles() {
	if !s.usesNCCL() {
		return
	}
	for _, n := range s.nodes {
		for _, f := range n.h.ConfigFiles {
			if !unread(n.h, f.Kind) {
				continue
			}
			var names []string
			for line := range strings.Lines(f.Text) {
				if name, _, ok := configLine(f.Kind, strings.TrimRight(line, "\r\n")); ok {
					names = append(names, name)
				}
			}
			if len(names) == 0 {
				continue
			}
			lib, own := "RCCL", "/etc/rccl.conf"
			if f.Kind == "rccl" {
				lib, own = "NCCL", "/etc/nccl.conf"
			}
			s.add(finding.Finding{
				ID: "value.file-unread", Severity: finding.Warning, Host: n.h.Name, Subject: "/" + strings.TrimPrefix(f.Path, "/"), Seen: "sets " + strings.Join(names, ", "),
				Wanted: own, Why: lib + " is this host's library, and it never reads this file: what it sets is not in force", Hint: "move what is meant for the job to " + own,
			})
		}
	}
}

// shippedDefault reports whether a setting is what a distribution's package
// writes into its own MCA file and nobody on this site decided. Debian's and
// Ubuntu's openmpi-bin turn UCX off so, for machines without RDMA
// (debian/openmpi-mca-params.conf); a plan for RDMA goes before it.
func shippedDefault(set Setting) bool {
	if set.Origin != FromSite || !strings.Contains(set.Where, "openmpi-mca-params.conf") {
		return false
	}
	switch set.Name + "=" + set.Value {
	case "OMPI_MCA_pml=^ucx", "OMPI_MCA_osc=^ucx,pt2pt", "OMPI_MCA_osc=^ucx", "OMPI_MCA_btl=^uct,openib,ofi", "OMPI_MCA_mtl=^ofi":
		return true
	}
	return false
}

func section(kind, line string) bool {
	return kind == "ucx" && strings.HasPrefix(strings.TrimSpace(line), "[")
}

func configLine(kind, line string) (name, value string, ok bool) {
	switch kind {
	case "nccl", "rccl":
		if strings.HasPrefix(line, "#") {
			return "", "", false
		}
		name, value, ok = strings.Cut(line, "=")
		return name, value, ok && (strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "RCCL_"))
	case "ucx":
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			return "", "", false
		}
		name, value, ok = strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		return name, value, ok && strings.HasPrefix(name, "UCX_")
	case "mca-openmpi", "mca-prte", "mca-pmix":
		line, _, _ = strings.Cut(line, "#")
		name, value, ok = strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		prefix := map[string]string{"mca-openmpi": "OMPI_MCA_", "mca-prte": "PRTE_MCA_", "mca-pmix": "PMIX_MCA_"}[kind]
		return prefix + name, value, ok && name != "" && !strings.ContainsAny(name, " \t")
	}
	return "", "", false
}

// SeenOn is what of a host can speak for a profile.
func SeenOn(h *topology.Host) profiles.Seen {
	s := profiles.Seen{DMI: []string{h.Product.Vendor, h.Product.Name, h.Product.Chassis}}
	for _, d := range h.PCI {
		if d.Vendor != nil && d.Device != nil {
			s.PCI = append(s.PCI, fmt.Sprintf("%04x:%04x", *d.Vendor, *d.Device))
		}
	}
	for _, c := range h.HCAs {
		s.HCAs = append(s.HCAs, c.Name)
		for _, p := range c.Ports {
			if l := strings.ToLower(p.LinkLayer); p.State == "ACTIVE" && l != "" && !slices.Contains(s.LinkLayers, l) {
				s.LinkLayers = append(s.LinkLayers, l)
			}
		}
	}
	for _, d := range h.Netdevs {
		s.Netdevs = append(s.Netdevs, d.Name)
	}
	for _, f := range h.ConfigFiles {
		s.Files = append(s.Files, strings.TrimPrefix(f.Path, "/"))
	}
	return s
}
