package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
)

// TorchNode adds to a plan for torchrun what one of its nodes needs: how many
// there are, which one it is, and where they meet. The static rendezvous takes
// its ranks from the order of the hosts and its store from node 0, whatever that
// machine calls itself. For c10d, which compares the endpoint with the names of
// the machine and is often wrong, node 0 is told that it is the host.
func TorchNode(p Plan, c cmdline.Command, node, n int, master string, port int) Plan {
	ctx := c.Apps[0]
	if ip, err := netip.ParseAddr(master); err == nil && ip.Is6() {
		master = "[" + master + "]"
	}
	// Underscores: PyTorch before 2.0 has no dashed spellings.
	var words []string
	if ctx.Last("nnodes") == nil {
		words = append(words, "--nnodes="+strconv.Itoa(n))
	}
	backend := ctx.Last("rdzv-backend")
	if backend != nil && len(backend.Values) > 0 && backend.Values[0] != "static" {
		words = append(words, fmt.Sprintf("--rdzv_endpoint=%s:%d", master, port), "--rdzv_id=fabrun-"+strconv.Itoa(port))
		if backend.Values[0] == "c10d" && ctx.Last("rdzv-conf") == nil {
			words = append(words, "--rdzv_conf=is_host="+strconv.Itoa(b2i(node == 0)))
		}
	} else {
		words = append(words, "--node_rank="+strconv.Itoa(node), "--master_addr="+master, "--master_port="+strconv.Itoa(port))
	}
	var args []Arg
	for i, w := range words {
		a := Arg{Text: w, Origin: envgen.FromPlan}
		if i == 0 {
			a.Why = "the nodes of this job, and where they meet"
		}
		args = append(args, a)
	}
	at := 0 // behind the launcher's own words
	for i, left := 0, c.Launcher.Words; i < len(p.Argv) && left > 0; i++ {
		if p.Argv[i].Origin == envgen.FromUser {
			left--
		}
		at = i + 1
	}
	p.Argv = slices.Concat(p.Argv[:at], args, p.Argv[at:])
	return p
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
