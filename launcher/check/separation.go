package check

import (
	"fmt"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// Separation says whether other traffic stays out of the RDMA class of the
// plan, on each port of the job: what is not marked must not land in the
// lossless priority, where one slow receiver of a file copy would pause RDMA;
// and the notifications of congestion must not queue behind the data.
func Separation(h topology.Host, p profiles.Profile, ports []string) []finding.Finding {
	q := p.Fabric.QoS
	if q == nil || q.RDMA.Priority == nil {
		return nil
	}
	l := &look{h: &h, p: &p, j: Job{Ports: ports}}
	for _, hca := range h.HCAs {
		for i := range hca.Ports {
			l.ports = append(l.ports, portRef{hca: hca, port: hca.Ports[i], mine: l.mine(hca, hca.Ports[i])})
		}
	}
	rdma := *q.RDMA.Priority
	for _, r := range l.ports {
		n := l.h.DCBNetdev(r.port.Netdev)
		if !r.mine || !r.roce() || n == nil || n.DCB == nil {
			continue
		}
		where := r.String() + " (" + n.Name + ")"
		l.id = "separation.unmarked"
		if got, ok := n.DCB.DSCPToPriority[0]; ok && got == rdma {
			l.say(finding.Error, where, fmt.Sprintf("DSCP 0, which is all unmarked traffic, goes to priority %d", got), "another priority than RDMA's",
				"ssh, storage and TCP share the lossless class with RDMA, and pause it", fmt.Sprintf("mlnx_qos -i %s --dscp2prio=set,0,0", n.Name)+finding.ForPort)
		}
		l.id = "separation.cnp"
		if q.CNP != nil {
			if got, ok := n.DCB.DSCPToPriority[q.CNP.DSCP]; ok && got == rdma {
				l.say(finding.Warning, where, fmt.Sprintf("CNP (DSCP %d) goes to priority %d, RDMA's own", q.CNP.DSCP, got), "a priority of its own",
					"notifications of congestion wait behind the data that congests", fmt.Sprintf("mlnx_qos -i %s --dscp2prio=set,%d,%d", n.Name, q.CNP.DSCP, cnpPriority(*q))+finding.ForPort)
			}
		}
		l.id = "separation.control"
		if c := q.Control; c != nil {
			if got, ok := n.DCB.DSCPToPriority[c.DSCP]; ok && got == rdma && c.DSCP != q.RDMA.DSCP {
				l.say(finding.Note, where, fmt.Sprintf("control messages (DSCP %d) go to priority %d, the data's", c.DSCP, got), "a priority of their own", "NCCL's control messages wait behind its data", "")
			}
		}
	}
	finding.Sort(l.out)
	return l.out
}

func cnpPriority(q profiles.QoS) int {
	if q.CNP != nil && q.CNP.Priority != nil {
		return *q.CNP.Priority
	}
	return 6
}
