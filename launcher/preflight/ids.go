package preflight

// Measures lists, for the documentation, every ID that a measurement may have
// as a finding, and what it is about; those of pasted outputs among them.
func Measures() [][2]string {
	out := [][2]string{
		{"pair.port", "a port is slow or dead with every good partner"},
		{"pair.node", "every rail of a host is slow or dead"},
		{"pair.group", "hosts that reach each other and nobody else"},
		{"pair.rail", "no pair of these on a rail is good"},
		{"pair.path", "two good ports, and something between them"},
		{"pair.pair", "either end of the only pair there is"},
		{"pair.gpu-staging", "GPU memory five times slower than host memory"},
		{"pair.no-rail", "no port that two hosts could use"},
		{"pair.no-perftest", "no program to measure with"},
		{"pair.reach-only", "packets get through; the rate was not measured"},
		{"pair.no-cuda", "perftest was built without CUDA"},
		{"pair.emulated", "software RDMA: its speed is not judged"},
		{"qos.wire", "the priority in which the test's bytes left and arrived, by the NICs' counters"},
		{"collective.failed", "a benchmark that did not run to its end"},
		{"collective.fallback", "the watcher saw a benchmark's data go over TCP"},
		{"collective.missing", "a benchmark that is not on every host"},
		{"collective.none", "no benchmark found"},
		{"collective.one-node", "a benchmark that could be run on one node only"},
		{"collective.floor", "what a cloud's health check takes for healthy"},
		{"compare.no-gain", "RDMA that is no faster than TCP"},
		{"nccl-tests.failed", "nccl-tests did not run to its end"},
		{"nccl-tests.wrong", "wrong results: data arrives damaged"},
		{"nccl-tests.no-result", "no row of results"},
		{"nccl-tests.bandwidth-low", "bus bandwidth below what the rails carry"},
		{"nccl-tests.node-drop", "a fivefold drop from one node to several"},
		{"osu.no-result", "no row of results"},
		{"osu.latency-high", "a small message takes as long as over sockets"},
		{"osu.bandwidth-low", "bandwidth below what the rails carry"},
		{"fabric.loss-signature", "the next size takes 30 times as long: packets are lost"},
		{"separation.unmarked", "unmarked traffic lands in the RDMA class"},
		{"separation.cnp", "congestion notifications queue behind the data"},
		{"separation.control", "control messages queue behind the data"},
		{"perftest.bandwidth-low", "less than the port's rate allows"},
		{"perftest.latency-high", "a small message takes too long for one switch"},
		{"perftest.large-drop", "larger messages are slower"},
		{"perftest.mtu-small", "an RDMA MTU below 4096"},
		{"perftest.small-messages", "messages too small to fill a link"},
		{"perftest.rate-unknown", "a figure that fits no rate that ports have"},
		{"perftest.cpu-frequency", "the CPU was not at its full frequency"},
		{"perftest.no-result", "no row of results"},
		{"perftest.completion-N", "a completion with an error: N is the ibv_wc_status"},
	}
	for _, f := range perftestFailures {
		out = append(out, [2]string{f.id, f.what})
	}
	return out
}
