// Package health is the one judge of RDMA ports: state, rate, link layer, MTU,
// GIDs, QoS. What is right comes as an argument; what is judged is a
// topology.Host, of a live machine, of a snapshot, or the fragment of one that
// somebody pasted. What a fragment does not say is not judged.
//
//	findings := health.Ports(&host, mine, health.Expect{Chosen: true, RateGbps: &rate})
package health
