package measure

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fabrun/launcher/check"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
	"fabrun/topology/pasted"
)

// Naming says what the culprits' numbers stand for.
type Naming struct {
	Hosts []string                    // by index
	Port  func(host, rail int) string // "mlx5_0 port 1"
	// Suspects answers, for one port, what is known of the usual causes, in the
	// order of suspicion (see Suspects); "" nothing is known. May be nil.
	Suspects func(host, rail int, o Outcome) string
}

// CulpritFindings says who is to blame, with names.
func CulpritFindings(cs []Culprit, n Naming, e Expect) []finding.Finding {
	var out []finding.Finding
	for _, c := range cs {
		out = append(out, culpritFinding(c, n, e))
	}
	finding.Sort(out)
	return out
}

func culpritFinding(c Culprit, n Naming, e Expect) finding.Finding {
	f := finding.Finding{ID: "pair." + c.Kind, Severity: finding.Error, Wanted: fmt.Sprintf("at least %.0f %% of the rate, both ways", 100*e.WarnFraction)}
	if c.Worst.Verdict == Degraded {
		f.Severity = finding.Warning
	}
	what, how := explainFailure(c.Worst.Error)
	switch {
	case c.Worst.Gbps != nil:
		f.Seen = RateText(*c.Worst.Gbps) + " Gb/s"
		if c.Worst.Others != nil {
			f.Wanted = fmt.Sprintf("about the %s Gb/s of the fastest of these software devices", RateText(*c.Worst.Others))
		}
		if u := c.Worst.Usec; u != nil && *u > e.LatencyUsec {
			f.Seen += fmt.Sprintf(", %.1f µs", *u)
		}
	case what != "":
		f.Seen = what
		if c.Worst.Said != "" {
			f.Seen += ": " + c.Worst.Said
		}
	default:
		f.Seen = cmp.Or(c.Worst.Said, cmp.Or(c.Worst.Error, "slow"))
	}
	way := map[Direction]string{Sending: " when it sends, fine when it receives", Receiving: " when it receives, fine when it sends", Both: " both ways"}[c.Direction]
	rail := "every rail"
	if c.Rail >= 0 {
		rail = fmt.Sprintf("rail %d", c.Rail)
	}
	h := n.Hosts[c.Hosts[0]]
	switch c.Kind {
	case "port":
		f.Host, f.Subject = h, n.Port(c.Hosts[0], c.Rail)+" ("+rail+")"
		f.Seen += way
		f.Why = "it is slow with every partner that is good with others: the port, its cable or its switch port"
		f.Hint = "look at the link: mlxlink -m -c -e; then PCIe width and NUMA node of the card"
		if c.Direction != Both {
			f.Hint = "one direction only: a dirty or bent fibre, or PFC on one side; mlxlink -m -c -e on both ends of the cable"
		}
		if n.Suspects != nil && c.Worst.Gbps != nil {
			if s := n.Suspects(c.Hosts[0], c.Rail, c.Worst); s != "" {
				f.Why += "; " + s
			}
		}
	case "node":
		f.Host, f.Subject = h, "node"
		f.Seen += " on every rail" + way
		f.Why, f.Hint = "all of its rails are slow: the host, not a cable", "leave it out: --exclude "+h+"; then compare its CPU governor, firmware settings, PCIe links and IOMMU with another host's (fabrun diff)"
		if c.Dead {
			f.Why, f.Hint = "nothing gets through on any rail", "leave it out: --exclude "+h+"; then its cables and their switch ports (two exchanged, or in the wrong switch?), and GID, VLAN and MTU of its ports: 'fabrun check' on it"
		}
	case "group":
		f.Subject = fmt.Sprintf("%d hosts on %s: %s", len(c.Hosts), rail, listHosts(c.Hosts, n.Hosts))
		f.Why, f.Hint = "they reach each other well and nobody else: what they share, a switch or its uplinks", "compare the MTU, PFC and uplinks of their switch with the others"
	case "rail":
		f.Subject = fmt.Sprintf("%s, %d hosts: %s", rail, len(c.Hosts), listHosts(c.Hosts, n.Hosts))
		f.Why, f.Hint = "no pair of these is good: the rail's switches, or its configuration on all hosts", "one wrong MTU, PFC or routing setting for the whole rail"
	case "path":
		f.Seen += n.ends(c)
		f.Subject = fmt.Sprintf("%s and %s, %s", h, n.Hosts[c.Hosts[1]], rail)
		f.Why, f.Hint = "both are good with others: something on the way between these two", "a switch link on their way (ECMP): error counters of the uplinks"
	default:
		f.Seen += n.ends(c)
		f.Subject = fmt.Sprintf("%s or %s, %s", h, n.Hosts[c.Hosts[1]], rail)
		f.Why, f.Hint = "there is no third host that is good to tell which end", "test each with one more host"
	}
	switch {
	case c.Worst.Staged():
		f.ID = "pair.gpu-staging"
		f.Seen = fmt.Sprintf("%.1f Gb/s between GPU memories, %.1f between host memories", *c.Worst.Gbps, *c.Worst.HostGbps)
		f.Wanted = fmt.Sprintf("less than a factor of %d", stagingFactor)
		f.Why = "GPU data is copied through host memory on its way"
		f.Hint = "nvidia_peermem or DMA-BUF, ACS and IOMMU off on the way, and GPU and NIC under one switch: 'fabrun check' and 'fabrun topo' say which"
	case c.Worst.Error == "perftest.connect":
		// The programs agree over TCP before RDMA is tried at all.
		f.Wanted, f.Why = "a connection", "the two programs did not find each other over TCP, so RDMA was not tested"
		f.Hint = "a firewall between the hosts, on the ports from 18515: leave them open, at least for the hosts of the job"
	case strings.HasPrefix(c.Worst.Error, "perftest.completion-") || strings.HasSuffix(c.Worst.Error, ".failed"):
		// Both ends are ours and started alike: what is left is the fabric.
		f.Wanted = "a result"
		if c.Kind == "port" || c.Kind == "node" {
			f.Why = "nothing gets through with any partner that is good with others"
			f.Hint = "GID, VLAN and MTU of its ports ('fabrun check' on that host), then the link: mlxlink -m -c -e"
		}
	case how != "" && c.Worst.Gbps == nil:
		f.Wanted, f.Hint = "a result", how
	case c.Worst.Error == "timeout":
		f.Seen, f.Wanted = strings.Replace(f.Seen, "timeout", "no end within the deadline", 1), "a result"
	}
	return f
}

// RateText is a rate in Gb/s for people: one digit behind the point, and two
// that mean something where a software device is slower than that shows.
func RateText(gbps float64) string {
	if gbps < 1 {
		return fmt.Sprintf("%.2g", gbps)
	}
	return fmt.Sprintf("%.1f", gbps)
}

// ends says between which two ports a pair's test was slow.
func (n Naming) ends(c Culprit) string {
	port := func(host int) string { return fmt.Sprintf("%s (%s)", n.Hosts[host], n.Port(host, c.Rail)) }
	a, b := port(c.Hosts[0]), port(c.Hosts[1])
	switch c.Direction {
	case Sending:
		return fmt.Sprintf(" from %s to %s, fine the other way", a, b)
	case Receiving:
		return fmt.Sprintf(" from %s to %s, fine the other way", b, a)
	}
	return fmt.Sprintf(" between %s and %s, both ways", a, b)
}

// explainFailure says what a failure's ID means and what to do; "" both where
// it is none of perftest's.
func explainFailure(id string) (what, hint string) {
	if what, hint := pasted.PerftestFailure(id); what != "" {
		return what, hint
	}
	switch id {
	case "pingpong.failed", "rping.failed":
		return "no packets came back", "the GID, a VLAN, a firewall, or the link"
	case "perftest.no-result":
		return "the test ended without a result", "run it by hand on the two hosts"
	}
	return "", ""
}

func listHosts(idx []int, hosts []string) string {
	var s []string
	for _, i := range idx[:min(len(idx), 6)] {
		s = append(s, hosts[i])
	}
	if len(idx) > 6 {
		s = append(s, fmt.Sprintf("… %s", hosts[idx[len(idx)-1]]))
	}
	return strings.Join(s, ", ")
}

// Suspects answers the questions that a slow port raises, in the order of
// suspicion (MTU, PFC, cable, PCIe, NUMA), each from what is known of the host:
// "first suspect: …" where one of them is wrong, then what was ruled out and
// what nobody can say.
func Suspects(h topology.Host, t *TestPort, p profiles.Profile, o Outcome) string {
	if t == nil {
		return ""
	}
	var port topology.Port
	for _, c := range h.HCAs {
		for _, q := range c.Ports {
			if c.Name == t.HCA && q.Number == t.Number {
				port = q
			}
		}
	}
	name := fmt.Sprintf("%s port %d", t.HCA, t.Number)
	fs := check.HostFindings(h, p, check.Job{Ports: []string{fmt.Sprintf("%s:%d", t.HCA, t.Number)}})
	wrong := func(ids ...string) string {
		for _, f := range fs {
			mine := f.Subject == t.HCA || strings.HasPrefix(f.Subject, name) || strings.HasPrefix(f.Subject, t.HCA+" ") || f.Subject == "PCIe" || f.Subject == "IOMMU"
			// A note says that something is not known, but of counters that there are some.
			if mine && slices.Contains(ids, f.ID) && (f.Severity != finding.Note || f.ID == "counter.errors") {
				return f.Seen
			}
		}
		return ""
	}
	var nic *topology.Netdev
	if t.Netdev != "" {
		nic = h.Netdev(t.Netdev)
	}
	type answer struct{ bad, good string } // both "": not known
	ask := []struct {
		what string
		answer
	}{{what: "MTU"}, {what: "PFC"}, {what: "cable"}, {what: "PCIe"}, {what: "NUMA"}}
	switch {
	case o.MTU != nil && *o.MTU < 4096 && port.LinkLayer == "Ethernet":
		ask[0].bad = fmt.Sprintf("the connection's RDMA MTU is %d", *o.MTU)
	case o.MTU != nil:
		ask[0].good = fmt.Sprint(*o.MTU)
	case wrong("mtu.netdev", "hca.active-mtu") != "":
		ask[0].bad = wrong("mtu.netdev", "hca.active-mtu")
	}
	switch bad := wrong("qos.pfc", "qos.trust", "qos.dscp-map", "qos.global-tclass", "qos.pause"); {
	case port.LinkLayer == "InfiniBand":
		ask[1].good = "credits, not PFC"
	case bad != "":
		ask[1].bad = bad
	case nic != nil && nic.DCB != nil && nic.DCB.PFC != nil && p.Fabric.QoS != nil:
		ask[1].good = fmt.Sprintf("on %v", nic.DCB.PFC)
	}
	if bad := wrong("counter.errors", "hca.port-slow", "hca.port-down"); bad != "" {
		ask[2].bad = bad
	} else if slices.ContainsFunc(h.Counters, func(s topology.CounterSample) bool { return s.Device == fmt.Sprintf("%s:%d", t.HCA, t.Number) }) {
		ask[2].good = "no errors counted"
	}
	if bad := wrong("pcie.link", "pcie.acs", "pcie.iommu"); bad != "" {
		ask[3].bad = bad
	} else if d := pciOf(h, t.HCA); d != nil && d.Link.Width != nil && d.Link.SpeedMTps != nil {
		ask[3].good = fmt.Sprintf("x%d at %g GT/s", *d.Link.Width, float64(*d.Link.SpeedMTps)/1000)
	}
	switch {
	case t.NUMA == nil:
	case len(t.CPUs) > 0:
		ask[4].good = fmt.Sprintf("pinned to node %d", *t.NUMA)
	case len(h.NUMA) == 1:
		ask[4].good = "one node"
	}
	var first, fine, unknown []string
	for _, q := range ask {
		switch {
		case q.bad != "":
			first = append(first, fmt.Sprintf("%s (%s)", q.what, q.bad))
		case q.good != "":
			fine = append(fine, fmt.Sprintf("%s (%s)", q.what, q.good))
		default:
			unknown = append(unknown, q.what)
		}
	}
	var out []string
	if len(first) > 0 {
		out = append(out, "first suspect: "+strings.Join(first, ", then "))
	}
	if len(fine) > 0 {
		out = append(out, "ruled out: "+strings.Join(fine, ", "))
	}
	if len(unknown) > 0 {
		out = append(out, "not known: "+strings.Join(unknown, ", "))
	}
	return strings.Join(out, "; ")
}

func pciOf(h topology.Host, hca string) *topology.PCIDevice {
	for _, c := range h.HCAs {
		if c.Name != hca || c.PCI == "" {
			continue
		}
		for i := range h.PCI {
			if h.PCI[i].Address == c.PCI {
				return &h.PCI[i]
			}
		}
	}
	return nil
}

// LimitsOfPairs says what a pair test could not show, as findings: programs
// that are missing or built without CUDA, reachability in place of bandwidth,
// emulated devices.
func LimitsOfPairs(all []Measured, r *PairRunner) []finding.Finding {
	missing, reached, emulated, tools := 0, 0, 0, map[string]bool{}
	for _, m := range all {
		soft := r.Ports[m.A][m.Rail].Emulated || r.Ports[m.B][m.Rail].Emulated
		for _, o := range []Outcome{m.There, m.Back} {
			switch {
			case o.Error == "perftest.missing":
				missing++
			case o.Tool != "":
				reached++
				tools[o.Tool] = true
			case soft && o.Gbps != nil:
				emulated++
			}
		}
	}
	var out []finding.Finding
	if missing > 0 {
		out = append(out, finding.Finding{
			ID: "pair.no-perftest", Severity: finding.Warning, Subject: "pairs", Seen: fmt.Sprintf("%d directions without ib_write_bw, ibv_rc_pingpong and rping%s", missing, onHosts(r.WithoutPerftest())),
			Wanted: "perftest on every host", Why: "these were not measured", Hint: "apt-get install perftest, or dnf install perftest",
		})
	}
	if reached > 0 {
		out = append(out, finding.Finding{
			ID: "pair.reach-only", Severity: finding.Warning, Subject: "pairs", Seen: fmt.Sprintf("%d directions with %s only: no ib_write_bw%s", reached, strings.Join(sortedNames(tools), " and "), onHosts(r.WithoutPerftest())),
			Wanted: "perftest on every host", Why: "packets get through; the rate was not measured, and not in the traffic class of the plan", Hint: "apt-get install perftest, or dnf install perftest",
		})
	}
	if emulated > 0 {
		out = append(out, finding.Finding{
			ID: "pair.emulated", Severity: finding.Note, Subject: "pairs", Seen: fmt.Sprintf("%d directions over software RDMA (rxe, siw)", emulated),
			Wanted: "an RDMA adapter", Why: "the CPU sends these packets: that they arrive is shown; their speed says nothing, only one that is far slower than the others is named",
		})
	}
	if hosts := r.WithoutCUDA(); len(hosts) > 0 {
		out = append(out, finding.Finding{
			ID: "pair.no-cuda", Severity: finding.Warning, Subject: "pairs", Seen: "perftest without --use_cuda" + onHosts(hosts),
			Wanted: "perftest built with CUDA", Why: "host memory was tested in place of GPU memory: nothing is shown of GPUDirect",
			Hint: "build perftest with CUDA_H_PATH=/usr/local/cuda/include/cuda.h ./configure, or take the one of MLNX_OFED with CUDA",
		})
	}
	return out
}

func onHosts(hosts []string) string {
	if len(hosts) == 0 {
		return ""
	}
	s := " on " + strings.Join(hosts[:min(len(hosts), 6)], ", ")
	if n := len(hosts) - 6; n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	return s
}

func sortedNames(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
