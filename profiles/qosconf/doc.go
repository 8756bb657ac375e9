// Package qosconf writes one QoS plan in every form that a RoCE fabric needs
// it in: the commands of a host (mlnx_qos, dcb, cma_roce_tos, ECN switches),
// the configuration of a switch (a Dialect each: Arista EOS and its kin, Onyx,
// Cumulus, SONiC, NX-OS) and of an ESXi host. And it goes the way back: it
// reads what a switch of any Dialect prints and compares it with the plan,
// saying what was compared and what was not. It prints, runs and changes
// nothing.
//
//	plan, err := qosconf.FromProfile(p)
//	lines, err := plan.Switch("onyx", qosconf.SwitchOptions{Ports: "1/1-1/32"})
//	sw := qosconf.ReadSwitch(text)
//	comparison := qosconf.Compare(sw, plan)
package qosconf
