package profiles

import (
	"maps"
	"slices"
)

func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

func setList[T any](dst *[]T, src []T) {
	if src != nil {
		*dst = slices.Clone(src)
	}
}

func setPtr[T any](dst **T, src *T) {
	if src != nil {
		v := *src
		*dst = &v
	}
}

// overlay writes what d says over p; what it does not say stays.
func (p *Profile) overlay(d *doc, r *rawProfile) {
	set(&p.Name, r.Name)
	set(&p.About, r.About)
	setList(&p.Hints, r.Hints)
	p.Source = d.path
	setList(&p.Match.DMI, r.Match.DMI)
	setList(&p.Match.PCI, r.Match.PCI)
	setList(&p.Match.HCAs, r.Match.HCAs)
	setList(&p.Match.Netdevs, r.Match.Netdevs)
	setList(&p.Match.Files, r.Match.Files)
	f, g := &p.Fabric, &r.Fabric
	set(&f.LinkLayer, g.LinkLayer)
	set(&f.RoCEVersion, g.RoCEVersion)
	setPtr(&f.RateGbps, g.RateGbps)
	setPtr(&f.MinMTUBytes, g.MinMTUBytes)
	setList(&f.Subnets, g.Subnets)
	set(&f.Bootstrap, g.Bootstrap)
	set(&f.GIDFamily, g.GIDFamily)
	setList(&f.ExcludeHCAs, g.ExcludeHCAs)
	if g.MinFirmware != nil {
		merged := maps.Clone(f.MinFirmware)
		if merged == nil {
			merged = map[string]string{}
		}
		maps.Copy(merged, g.MinFirmware)
		f.MinFirmware = merged
	}
	setPtr(&f.RailOnly, g.RailOnly)
	setPtr(&f.AdaptiveRoute, g.AdaptiveRouting)
	set(&f.Driver, g.Driver)
	set(&f.SetNothing, g.SetNothing)
	setPtr(&f.Expect.WarnFraction, g.Expect.WarnFraction)
	setPtr(&f.Expect.ErrorFraction, g.Expect.ErrorFraction)
	setPtr(&f.Expect.LatencyUsec, g.Expect.LatencyUsec)
	if g.QoS != nil {
		if f.QoS == nil {
			f.QoS = &QoS{}
		}
		f.QoS.overlay(g.QoS)
	}
	p.Env = overlayEnv(p.Env, d, r.Env)
}

func (q *QoS) overlay(r *rawQoS) {
	set(&q.Trust, r.Trust)
	if r.RDMA != nil {
		q.RDMA.overlay(r.RDMA)
	}
	q.Control = overlayClass(q.Control, r.Control)
	q.CNP = overlayClass(q.CNP, r.CNP)
	setList(&q.PFC, r.PFC)
	if r.ECN != nil {
		setPtr(&q.ECNMinKB, r.ECN.MinKB)
		setPtr(&q.ECNMaxKB, r.ECN.MaxKB)
	}
	setPtr(&q.Pool, r.PoolPercent)
	setList(&q.ETS, r.ETS)
	setPtr(&q.Watchdog, r.Watchdog)
}

func (c *Class) overlay(r *rawClass) {
	set(&c.DSCP, r.DSCP)
	set(&c.ECN, r.ECN)
	setPtr(&c.Priority, r.Priority)
	setPtr(&c.SL, r.SL)
}

func overlayClass(c *Class, r *rawClass) *Class {
	if r == nil {
		return c
	}
	out := Class{}
	if c != nil {
		out = *c
	}
	out.overlay(r)
	return &out
}

// overlayEnv keeps the order of the files: a variable said again keeps its
// place and takes the later value.
func overlayEnv(have []Setting, d *doc, env map[string]rawEnv) []Setting {
	for _, key := range d.meta.Keys() {
		if len(key) != 2 || key[0] != "env" {
			continue
		}
		e := env[key[1]]
		s := Setting{Name: key[1], Value: *e.Value, Why: *e.Why}
		for _, id := range slices.Sorted(maps.Keys(e.ByPCI)) {
			s.ByPCI = append(s.ByPCI, PCIValue{id, e.ByPCI[id]})
		}
		if i := slices.IndexFunc(have, func(h Setting) bool { return h.Name == s.Name }); i >= 0 {
			have[i] = s
		} else {
			have = append(have, s)
		}
	}
	return have
}

func (w *Workload) overlay(d *doc, r *rawWorkload) {
	set(&w.Name, r.Name)
	set(&w.About, r.About)
	w.Source = d.path
	set(&w.Slots, r.Slots)
	set(&w.ReserveCores, r.ReserveCores)
	if r.Channels != nil {
		w.MemoryChannels = r.Channels
	}
	set(&w.Binding, r.Binding)
	setList(&w.MPIOptions, r.MPIOptions)
	setList(&w.Forward, r.Forward)
	setList(&w.Programs, r.Programs)
	w.Env = overlayEnv(w.Env, d, r.Env)
}
