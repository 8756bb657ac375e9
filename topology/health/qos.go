package health

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// roce calls f for each RoCE port that is up, or of which no state is known,
// with the netdev that has its DCB settings.
func (l *look) roce(f func(p port, n *topology.Netdev)) {
	for _, p := range l.ports {
		if u := l.up(p); !p.roce() || u != nil && !*u {
			continue
		}
		if n := l.h.DCBNetdev(p.Netdev); n != nil {
			f(p, n)
		}
	}
}

// planned does so where a plan is known.
func (l *look) planned(f func(p port, n *topology.Netdev, q *QoS)) {
	if l.e.QoS != nil {
		l.roce(func(p port, n *topology.Netdev) { f(p, n, l.e.QoS) })
	}
}

// unplanned does so where none is, and the settings are known.
func (l *look) unplanned(f func(p port, n *topology.Netdev, d *topology.DCB)) {
	if l.e.QoS == nil && l.e.AnyQoS {
		l.roce(func(p port, n *topology.Netdev) {
			if n.DCB != nil {
				f(p, n, n.DCB)
			}
		})
	}
}

func trust(l *look) {
	l.planned(func(p port, n *topology.Netdev, q *QoS) {
		if n.DCB == nil && n.DCBError != "" {
			// Of a VF the kernel tells nothing: the settings are the PF's.
			l.say(finding.Note, on(p, n.Name), "trust and PFC cannot be read: "+n.DCBError, "trust "+orText(q.Trust, "as planned"), "whether RDMA is lossless here is not known", "mlnx_qos -i on the host's own port (the PF), or the switch's side")
			return
		}
		if n.DCB == nil || q.Trust == "" || n.DCB.Trust == "" || n.DCB.Trust == q.Trust {
			return
		}
		l.say(finding.Error, on(p, n.Name), "trust "+n.DCB.Trust, "trust "+q.Trust, "the NIC puts RDMA packets into priority 0, without PFC", "mlnx_qos -i "+inCommand(n.Name)+" --trust="+q.Trust+finding.ForPort)
	})
	l.unplanned(func(p port, n *topology.Netdev, d *topology.DCB) {
		if d.Trust == "pcp" && len(d.PFC) > 0 {
			l.say(finding.Warning, on(p, n.Name), "trust pcp, lossless "+list(d.PFC), "trust dscp",
				"RoCE v2 packets without a VLAN tag carry their class in the DSCP, which is ignored here: they do not reach the lossless priority",
				"mlnx_qos -i "+inCommand(n.Name)+" --trust=dscp"+finding.ForPort)
		}
	})
}

func pfc(l *look) {
	l.planned(func(p port, n *topology.Netdev, q *QoS) {
		if n.DCB == nil || n.DCB.PFC == nil || len(q.PFC) == 0 {
			return
		}
		var missing, extra []int
		for _, prio := range q.PFC {
			if !slices.Contains(n.DCB.PFC, prio) {
				missing = append(missing, prio)
			}
		}
		for _, prio := range n.DCB.PFC {
			if !slices.Contains(q.PFC, prio) {
				extra = append(extra, prio)
			}
		}
		// The mask is set as a whole: what is on beside the plan stays on with the
		// first hint, since something else may count on it.
		hint := func(on []int) string {
			return "mlnx_qos -i " + inCommand(n.Name) + " --pfc=" + topology.PFCMask(on) + finding.ForPort
		}
		if missing != nil {
			l.say(finding.Error, on(p, n.Name), "PFC on "+priorities(n.DCB.PFC), "PFC on "+priorities(q.PFC), "packets of the RDMA priority are dropped when a buffer is full", hint(slices.Concat(n.DCB.PFC, missing)))
		} else if extra != nil {
			l.say(finding.Warning, on(p, n.Name), "PFC also on "+priorities(extra), "PFC on "+priorities(q.PFC)+" only", "other traffic can pause the wire", "a profile that has them, where they are meant (storage often has one of its own); else "+hint(q.PFC))
		}
	})
	l.unplanned(func(p port, n *topology.Netdev, d *topology.DCB) {
		if d.PFC != nil && len(d.PFC) == 0 {
			l.say(finding.Warning, on(p, n.Name), "PFC on no priority", "PFC on the RoCE priority, or a fabric made for lossy RoCE",
				"under congestion RoCE packets are dropped, which costs far more than waiting",
				"with the priority that the switches have for RoCE, often 3: mlnx_qos -i "+inCommand(n.Name)+" --pfc=0,0,0,1,0,0,0,0"+finding.ForPort)
		}
	})
}

func lossless(l *look) {
	l.unplanned(func(p port, n *topology.Netdev, d *topology.DCB) {
		if len(d.PFC) > 3 {
			l.say(finding.Warning, on(p, n.Name), "lossless "+list(d.PFC), "one, at most three lossless priorities", "each takes its own headroom out of the same buffer, and NICs have few lossless queues", "")
		}
	})
}

func dscpMap(l *look) {
	l.planned(func(p port, n *topology.Netdev, q *QoS) {
		if n.DCB == nil || n.DCB.Trust != "dscp" || q.Priority == nil || len(n.DCB.DSCPToPriority) == 0 {
			return
		}
		set := fmt.Sprintf("mlnx_qos -i %s --dscp2prio set,%d,%d", inCommand(n.Name), q.DSCP, *q.Priority) + finding.ForPort
		switch got, ok := n.DCB.DSCPToPriority[q.DSCP]; {
		case ok && got != *q.Priority:
			l.say(finding.Error, on(p, n.Name), fmt.Sprintf("DSCP %d goes to priority %d", q.DSCP, got), fmt.Sprintf("priority %d", *q.Priority), "the plan's packets ride in a priority without PFC", set)
		case !ok:
			// What no entry names goes to priority 0 (kernel, net/dcb: dcb_ieee_getapp_mask).
			l.say(l.amiss(), on(p, n.Name), fmt.Sprintf("DSCP %d is in no row of the map (%d are)", q.DSCP, len(n.DCB.DSCPToPriority)), fmt.Sprintf("priority %d", *q.Priority), "packets that no row names ride in priority 0", set)
		}
	})
	l.unplanned(func(p port, n *topology.Netdev, d *topology.DCB) {
		if d.Trust == "dscp" && d.DSCPToPriority != nil && len(d.PFC) > 0 && len(d.LosslessDSCPs()) == 0 {
			l.say(finding.Warning, on(p, n.Name), "no DSCP maps to lossless priority "+list(d.PFC), "the DSCP of RoCE in it", "no RoCE v2 packet can reach it",
				fmt.Sprintf("with the DSCP that the job uses, often 26: mlnx_qos -i %s --dscp2prio set,26,%d", inCommand(n.Name), d.PFC[0])+finding.ForPort)
		}
	})
}

func class(l *look) {
	for _, p := range l.ports {
		t := p.GlobalTClass
		if t == nil {
			continue
		}
		subject := p.String()
		if p.hca.Name == "" {
			subject = p.Netdev
		}
		if q := l.e.QoS; q != nil {
			if *t != q.TC {
				l.say(finding.Error, subject, fmt.Sprintf("port-wide traffic class %d (DSCP %d)", *t, *t>>2), fmt.Sprintf("%d, or none", q.TC),
					"it overrides what every library sets", fmt.Sprintf("echo %d > /sys/class/infiniband/%s/tc/%d/traffic_class", q.TC, orText(p.hca.Name, "HCA"), p.Number)+finding.ForRDMA)
			}
			continue
		}
		n := l.h.DCBNetdev(p.Netdev)
		if !l.e.AnyQoS || n == nil || n.DCB == nil || n.DCB.Trust != "dscp" || n.DCB.PFC == nil {
			continue
		}
		if prio, ok := n.DCB.DSCPToPriority[*t>>2]; ok && !slices.Contains(n.DCB.PFC, prio) {
			l.say(finding.Warning, subject, fmt.Sprintf("Global tclass=%d is DSCP %d, priority %d", *t, *t>>2, prio), "a DSCP of lossless priority "+list(n.DCB.PFC),
				"it overrides what the application asks for, and sends RoCE to a lossy priority", "")
		}
	}
}

func dcbx(l *look) {
	l.unplanned(func(p port, n *topology.Netdev, d *topology.DCB) {
		if !strings.Contains(strings.ToLower(d.DCBX), "firmware") && !strings.Contains(d.DCBX, "lld-managed") && (d.Willing == nil || !*d.Willing) {
			return
		}
		l.say(finding.Note, on(p, n.Name), "DCBX: "+orText(d.DCBX, "willing"), "OS controlled, where the host's settings are to stay", "the switch may change this configuration at any time", "")
	})
}

func congestion(l *look) {
	l.planned(func(p port, n *topology.Netdev, q *QoS) {
		if q.Priority == nil {
			return
		}
		for _, e := range p.ECN {
			if e.Priority != *q.Priority {
				continue
			}
			for _, s := range []struct {
				on   *bool
				name string
			}{{e.NotifyPoint, "roce_np"}, {e.ReactPoint, "roce_rp"}} {
				if s.on != nil && !*s.on {
					l.say(finding.Warning, on(p, n.Name), fmt.Sprintf("%s off on priority %d", s.name, e.Priority), "on", "senders do not slow down: PFC pauses the fabric instead", fmt.Sprintf("echo 1 > /sys/class/net/%s/ecn/%s/enable/%d", n.Name, s.name, e.Priority)+finding.ForPort)
				}
			}
		}
	})
}

func notifications(l *look) {
	l.planned(func(p port, n *topology.Netdev, q *QoS) {
		if q.CNP == nil || p.CNPs == nil {
			return
		}
		if d := p.CNPs.DSCP; d != nil && q.CNP.DSCP != nil && *d != *q.CNP.DSCP {
			l.say(finding.Warning, on(p, n.Name), fmt.Sprintf("CNP DSCP %d", *d), fmt.Sprint(*q.CNP.DSCP), "notifications wait behind the data", fmt.Sprintf("echo %d > /sys/class/net/%s/ecn/roce_np/cnp_dscp", *q.CNP.DSCP, n.Name)+finding.ForPort)
		}
		if prio := p.CNPs.Priority; prio != nil && q.CNP.Priority != nil && *prio != *q.CNP.Priority {
			l.say(finding.Warning, on(p, n.Name), fmt.Sprintf("CNP priority %d", *prio), fmt.Sprint(*q.CNP.Priority), "notifications wait behind the data", fmt.Sprintf("echo %d > /sys/class/net/%s/ecn/roce_np/cnp_802p_prio", *q.CNP.Priority, n.Name)+finding.ForPort)
		}
	})
}

func pause(l *look) {
	l.planned(func(p port, n *topology.Netdev, q *QoS) {
		if n.Ethtool != nil && n.Ethtool.GlobalPause != nil && *n.Ethtool.GlobalPause && len(q.PFC) > 0 {
			l.say(finding.Warning, on(p, n.Name), "global pause on", "off", "global pause and PFC exclude each other: the whole wire stops", "with PFC on at both ends: ethtool -A "+n.Name+" rx off tx off"+finding.ForPort)
		}
	})
}

// alike: rails of one host that treat the same packet differently.
func alike(l *look) {
	var first *topology.Netdev
	l.unplanned(func(p port, n *topology.Netdev, d *topology.DCB) {
		if first == nil {
			first = n
			return
		}
		if a := first.DCB; a.Trust != d.Trust || !slices.Equal(a.PFC, d.PFC) || !sameMap(a.DSCPToPriority, d.DSCPToPriority) {
			l.say(finding.Warning, on(p, n.Name), summary(d), fmt.Sprintf("as %s: %s", first.Name, summary(a)), "rails that treat the same packet differently are as bad as the worst of them", "apply one configuration to every netdev of the fabric")
		}
	})
}

func sameMap(a, b map[int]int) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func summary(d *topology.DCB) string {
	lossless := "not said"
	if d.PFC != nil {
		lossless = list(d.PFC)
	}
	return fmt.Sprintf("trust %s, lossless %s", orText(d.Trust, "not said"), lossless)
}

// priorities are 802.1p priorities in words.
func priorities(list []int) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = strconv.Itoa(p)
	}
	switch len(list) {
	case 0:
		return "no priority"
	case 1:
		return "priority " + words[0]
	}
	return "priorities " + strings.Join(words, ", ")
}
