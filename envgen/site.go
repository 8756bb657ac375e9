package envgen

import (
	"fmt"
	"strings"

	"fabrun/profiles"
	"fabrun/topology"
)

// SiteSettings are the variables that a host's configuration files set by
// themselves: nccl.conf (NAME=VALUE, nothing trimmed, '#' only as the first
// letter), ucx.conf (INI; sections hold only on some machines and are left
// out), and MCA parameter files (name = value). Earlier ones are the stronger.
func SiteSettings(h *topology.Host) []Setting {
	var out []Setting
	for _, f := range h.ConfigFiles {
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
	case "nccl":
		if strings.HasPrefix(line, "#") {
			return "", "", false
		}
		name, value, ok = strings.Cut(line, "=")
		return name, value, ok && strings.HasPrefix(name, "NCCL_")
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

// EnvSettings are the variables that a snapshot carries of the environment it
// was taken in: with --from they stand for the user's.
func EnvSettings(h *topology.Host) []Setting {
	var out []Setting
	for _, v := range h.Env {
		out = append(out, Setting{Name: v.Name, Value: v.Value, Origin: FromUser, Where: "environment of the snapshot"})
	}
	return out
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
	}
	for _, d := range h.Netdevs {
		s.Netdevs = append(s.Netdevs, d.Name)
	}
	for _, f := range h.ConfigFiles {
		s.Files = append(s.Files, strings.TrimPrefix(f.Path, "/"))
	}
	return s
}
