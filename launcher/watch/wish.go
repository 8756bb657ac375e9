package watch

import (
	"slices"
	"strings"
)

// AsksForTCP is the setting by which somebody chose TCP, "UCX_TLS=tcp,self", so
// that a job over TCP is what was asked for; "" where nothing does. set is what the
// ranks see, by name.
func AsksForTCP(set map[string]string) string {
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
	for _, w := range []struct {
		name string
		tcp  func(value string) bool
	}{
		{"NCCL_NET", func(v string) bool { return strings.EqualFold(v, netSocketName) }},
		{"NCCL_IB_DISABLE", isOn},
		{"OMPI_MCA_btl", func(v string) bool { return has(v, "tcp") }},
		{"OMPI_MCA_pml", func(v string) bool { return v == "ob1" && !has(set["OMPI_MCA_btl"], "openib") }},
		{"FI_PROVIDER", isTCPProvider},
		{"I_MPI_OFI_PROVIDER", isTCPProvider},
		{"I_MPI_FABRICS", func(v string) bool { return strings.Contains(v, "tcp") }},
		{"UCX_NET_DEVICES", netdevsOnly},
		{"UCX_TLS", func(v string) bool {
			return has(v, "tcp") && !slices.ContainsFunc(strings.Split(v, ","), func(tl string) bool { return isUCXRDMA(tl) || tl == "ib" })
		}},
	} {
		if v := set[w.name]; v != "" && w.tcp(v) {
			return w.name + "=" + v
		}
	}
	return ""
}

// netdevsOnly reports whether a list for UCX_NET_DEVICES names no RDMA device: those
// have their port behind a colon.
func netdevsOnly(list string) bool {
	return list != "" && list != "all" && !strings.HasPrefix(list, "^") && !strings.ContainsAny(list, ":*")
}

// AsAsked is the verdict of a job of which more is known than its logs tell: by
// setting its user chose TCP; "" by none.
func (v Verdict) AsAsked(setting string) Verdict {
	if setting == "" || v.Fallback == nil || !*v.Fallback || v.Intentional {
		return v
	}
	v.Intentional = true
	if _, text, ok := strings.Cut(v.Sentence, "FALLBACK to TCP: "); ok {
		v.Sentence = "TCP, as was asked for (" + setting + "): " + text
	}
	return v
}

// Merge joins what the eyes of several nodes say of one job. Where all of them saw as
// many runs, each run is joined too.
func Merge(vs []Verdict) Verdict {
	if len(vs) == 1 {
		return vs[0]
	}
	out := merge(vs)
	spoke := slices.DeleteFunc(slices.Clone(vs), func(v Verdict) bool { return v.Library == "" && len(v.Events) == 0 })
	if len(spoke) == 0 || slices.ContainsFunc(spoke, func(v Verdict) bool { return len(v.Runs) != len(spoke[0].Runs) }) {
		return out
	}
	for i := range spoke[0].Runs {
		var run []Verdict
		for _, v := range spoke {
			run = append(run, v.Runs[i])
		}
		out.Runs = append(out.Runs, merge(run))
	}
	return out
}

func merge(vs []Verdict) Verdict {
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
		if c := v.Connections; c != nil {
			if out.Connections == nil {
				out.Connections = &Connections{}
			}
			out.Connections.Direct += c.Direct
			out.Connections.Relayed += c.Relayed
			out.Connections.Staged += c.Staged
			out.Connections.Untold += c.Untold
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
	if out.Fallback != nil && !fellBack {
		out.Sentence = out.cleared()
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
