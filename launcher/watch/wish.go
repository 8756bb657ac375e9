package watch

import (
	"slices"
	"strings"
)

// AsksForTCP reports whether a command line and an environment choose TCP, so
// that a job over TCP is what was asked for. set is the environment by name.
func AsksForTCP(argv []string, set map[string]string) bool {
	env := func(name string) string { return set[name] }
	// Open MPI takes '--mca NAME VALUE'; ranks get '-x NAME=VALUE', '-genv NAME VALUE'.
	get := map[string]string{}
	for i, w := range argv {
		if (w == "--mca" || w == "-mca" || w == "--gmca" || w == "-genv" || w == "-env") && i+2 < len(argv) {
			get[argv[i+1]] = argv[i+2]
		}
		if (w == "-x" || w == "--x") && i+1 < len(argv) {
			if name, v, ok := strings.Cut(argv[i+1], "="); ok {
				get[name] = v
			}
		}
	}
	value := func(names ...string) string {
		for _, n := range names {
			if v := get[n]; v != "" {
				return v
			}
			if v := env(n); v != "" {
				return v
			}
		}
		return ""
	}
	has := func(list, item string) bool {
		if strings.HasPrefix(list, "^") {
			return false
		}
		for f := range strings.SplitSeq(list, ",") {
			if strings.TrimSpace(f) == item {
				return true
			}
		}
		return false
	}
	switch {
	case strings.EqualFold(value("NCCL_NET"), netSocketName), isOn(value("NCCL_IB_DISABLE")):
		return true
	case has(value("btl", "OMPI_MCA_btl"), "tcp"), value("pml", "OMPI_MCA_pml") == "ob1" && !has(value("btl", "OMPI_MCA_btl"), "openib"):
		return true
	case isTCPProvider(value("FI_PROVIDER", "I_MPI_OFI_PROVIDER")), strings.Contains(value("I_MPI_FABRICS"), "tcp"):
		return true
	case netdevsOnly(value("UCX_NET_DEVICES")):
		return true
	}
	tls := value("UCX_TLS")
	if tls == "" || strings.HasPrefix(tls, "^") || !has(tls, "tcp") {
		return false
	}
	for tl := range strings.SplitSeq(tls, ",") {
		if isUCXRDMA(tl) || tl == "ib" {
			return false
		}
	}
	return true
}

// netdevsOnly reports whether a list for UCX_NET_DEVICES names no RDMA device: those
// have their port behind a colon.
func netdevsOnly(list string) bool {
	return list != "" && list != "all" && !strings.HasPrefix(list, "^") && !strings.ContainsAny(list, ":*")
}

// Merge joins what the eyes of several nodes say of one job.
func Merge(vs []Verdict) Verdict {
	if len(vs) == 1 {
		return vs[0]
	}
	out := Verdict{Schema: SchemaVerdict, Networks: []string{}, InterNodeTransports: []string{}, Devices: []string{}, FatalErrors: []string{}, Events: []Event{}}
	said := map[string]bool{}
	var unknown, sure bool
	for _, v := range vs {
		if v.Library == "" && len(v.Events) == 0 {
			continue
		}
		if out.Library == "" || v.Library == "rccl" {
			out.Library = v.Library
		}
		if out.Version == "" {
			out.Version = v.Version
		}
		for _, l := range []struct{ to, from *[]string }{
			{&out.Networks, &v.Networks},
			{&out.InterNodeTransports, &v.InterNodeTransports},
			{&out.Devices, &v.Devices},
			{&out.FatalErrors, &v.FatalErrors},
		} {
			for _, s := range *l.from {
				addOnce(l.to, s)
			}
		}
		switch {
		case v.GDR == nil:
		case out.GDR == nil:
			out.GDR, out.GDRPartial = v.GDR, v.GDRPartial
		case *out.GDR != *v.GDR:
			yes := true
			out.GDR, out.GDRPartial = &yes, true
		default:
			out.GDRPartial = out.GDRPartial || v.GDRPartial
		}
		if r := v.GDRRanks; r != nil {
			if out.GDRRanks == nil {
				out.GDRRanks = &GDRRanks{Yes: []int{}, Partly: []int{}, No: []int{}}
			}
			out.GDRRanks.Yes = append(out.GDRRanks.Yes, r.Yes...)
			out.GDRRanks.Partly = append(out.GDRRanks.Partly, r.Partly...)
			out.GDRRanks.No = append(out.GDRRanks.No, r.No...)
		}
		addInt(&out.RanksSeen, v.RanksSeen, false)
		addInt(&out.NRanks, v.NRanks, true)
		addInt(&out.NNodes, v.NNodes, true)
		switch {
		case v.Fallback == nil:
			unknown = true
		case *v.Fallback:
			if out.Fallback == nil || !*out.Fallback || out.Intentional && !v.Intentional {
				out.Fallback, out.Cause, out.Intentional, out.Sentence = v.Fallback, v.Cause, v.Intentional, v.Sentence
			}
		default:
			sure = true
			if out.Fallback == nil {
				out.Fallback, out.Sentence = v.Fallback, v.Sentence
			}
		}
		if out.Sentence == "" {
			out.Sentence = v.Sentence
		}
		for _, e := range v.Events {
			if key := e.ID + e.Cause; !said[key] && len(out.Events) < maxEvents {
				said[key] = true
				out.Events = append(out.Events, e)
			}
		}
	}
	if r := out.GDRRanks; r != nil {
		slices.Sort(r.Yes)
		slices.Sort(r.Partly)
		slices.Sort(r.No)
	}
	fellBack := out.Fallback != nil && *out.Fallback
	if !fellBack && unknown && !sure {
		out.Fallback = nil
	}
	if fellBack && sure {
		cause := CauseMixed
		out.Cause, out.Intentional = &cause, false
		out.Sentence = "FALLBACK to TCP: " + causeTexts[CauseMixed]
	}
	if len(out.FatalErrors) > 0 && !fellBack {
		for _, v := range vs {
			if len(v.FatalErrors) > 0 {
				out.Sentence = v.Sentence
				break
			}
		}
	}
	if out.Sentence == "" {
		out.Sentence = "Unknown: no line of NCCL, UCX or MPI in what was read."
	}
	return out
}

func addInt(to **int, n *int, largest bool) {
	if n == nil {
		return
	}
	v := *n
	if *to != nil {
		if largest {
			v = max(v, **to)
		} else {
			v += **to
		}
	}
	*to = &v
}
