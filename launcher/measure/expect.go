package measure

import "fabrun/profiles"

// ExpectOf is what a healthy fabric gives by the profile, or by rule.
func ExpectOf(p *profiles.Profile) Expect {
	e := DefaultExpect()
	if p == nil {
		return e
	}
	e.RateGbps = p.Fabric.RateGbps
	for _, s := range []struct {
		from *float64
		to   *float64
	}{{p.Fabric.Expect.WarnFraction, &e.WarnFraction}, {p.Fabric.Expect.ErrorFraction, &e.ErrorFraction}, {p.Fabric.Expect.LatencyUsec, &e.LatencyUsec}} {
		if s.from != nil {
			*s.to = *s.from
		}
	}
	return e
}
