package cmdline

import (
	"fmt"
	"strconv"
	"strings"
)

// torchOwn are the options by which a user arranges several nodes himself; each
// is also read from PET_NAME (torch/distributed/run.py).
var torchOwn = []string{"standalone", "node-rank", "master-addr", "master-port", "rdzv-endpoint", "rdzv-id"}

// TorchSpread reports whether torchrun is to be started on n nodes by fabrun:
// the user has arranged nothing himself, or only the number of nodes, rightly.
// why says what stands against it; "" when nothing does, or when it is not
// about torchrun at all.
func (c Command) TorchSpread(env []string, n int) (spread bool, why string) {
	if n < 2 || len(c.Apps) == 0 || !c.Launcher.Dialect.PerNode {
		return false, ""
	}
	ctx := c.Apps[0]
	for _, name := range torchOwn {
		if o := ctx.Last(name); o != nil {
			return false, c.Argv[o.At] + " is given: torchrun is started here only"
		}
		if v := petVar(name); Value(env, v) != "" {
			return false, v + " is set: torchrun is started here only"
		}
	}
	nodes := Value(env, petVar("nnodes"))
	if o := ctx.Last("nnodes"); o != nil && len(o.Values) > 0 {
		nodes = o.Values[0]
	}
	if nodes != "" && nodes != strconv.Itoa(n) && nodes != "1" {
		lo, hi, elastic := strings.Cut(nodes, ":")
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if !elastic || err1 != nil || err2 != nil || n < a || n > b {
			return false, fmt.Sprintf("--nnodes %s does not fit the %d hosts: torchrun is started here only", nodes, n)
		}
	}
	if nodes == "1" {
		return false, "--nnodes 1: torchrun is started here only"
	}
	return true, ""
}

// TorchNodes is on how many nodes torchrun expects to be started, at least; 0 where it
// does not say, or is another launcher.
func (c Command) TorchNodes(env []string) int {
	if len(c.Apps) == 0 || !c.Launcher.Dialect.PerNode {
		return 0
	}
	least, _, _ := strings.Cut(c.torchNodes(env), ":")
	n, err := strconv.Atoi(least)
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// TorchNodesMost is on how many nodes torchrun may be started, at most; 0 where it
// is another launcher, or what it says is no number.
func (c Command) TorchNodesMost(env []string) int {
	if len(c.Apps) == 0 || !c.Launcher.Dialect.PerNode {
		return 0
	}
	said := c.torchNodes(env)
	if _, most, elastic := strings.Cut(said, ":"); elastic {
		said = most
	}
	n, err := strconv.Atoi(said)
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// TorchLeast is with how many nodes torchrun goes on when it loses one; 0 where it
// does not: only an elastic job does, and only with a rendezvous that can meet anew
// (torch/distributed/elastic/rendezvous: the static one cannot).
func (c Command) TorchLeast(env []string) int {
	if len(c.Apps) == 0 || !c.Launcher.Dialect.PerNode {
		return 0
	}
	backend := Value(env, petVar("rdzv-backend"))
	if o := c.Apps[0].Last("rdzv-backend"); o != nil && len(o.Values) > 0 {
		backend = o.Values[0]
	}
	least := c.TorchNodes(env)
	if backend == "" || backend == "static" || least >= c.TorchNodesMost(env) {
		return 0
	}
	return least
}

// torchNodes is what torchrun is told of its nodes, "2" or "1:4".
func (c Command) torchNodes(env []string) string {
	if o := c.Apps[0].Last("nnodes"); o != nil && len(o.Values) > 0 {
		return o.Values[0]
	}
	if said := Value(env, petVar("nnodes")); said != "" {
		return said
	}
	return "1" // its default
}

// TorchRestarts reports whether torchrun is to start workers again that fail.
func (c Command) TorchRestarts(env []string) bool {
	restarts := Value(env, petVar("max-restarts"))
	if len(c.Apps) > 0 {
		if o := c.Apps[0].Last("max-restarts"); o != nil && len(o.Values) > 0 {
			restarts = o.Values[0]
		}
	}
	return restarts != "" && restarts != "0"
}

// TorchTees reports whether torchrun passes on what its workers print.
func (c Command) TorchTees(env []string) bool {
	return Value(env, petVar("tee")) != "" || len(c.Apps) > 0 && c.Apps[0].Last("tee") != nil
}

func petVar(option string) string {
	return "PET_" + strings.ToUpper(strings.ReplaceAll(option, "-", "_"))
}
