// Package qosconf writes one QoS plan in every form that a RoCE fabric needs
// it in: the commands of a host (mlnx_qos, dcb, cma_roce_tos, ECN switches),
// the configuration of a switch (Arista EOS and its kin, Onyx) and of an ESXi
// host. And it goes the way back: it reads what a switch prints and compares
// it with the plan. It prints, runs and changes nothing.
//
//	plan, err := qosconf.FromProfile(p)
//	lines, err := plan.Switch("onyx", qosconf.SwitchOptions{Ports: "1/1-1/32"})
//	sw := qosconf.ReadSwitch(text)
//	findings := qosconf.Compare(sw, plan)
package qosconf
