package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fabrun/envgen"
)

// torchOwn are the options by which a user arranges several nodes himself; each
// is also read from PET_NAME (torch/distributed/run.py).
var torchOwn = []string{"standalone", "node-rank", "master-addr", "master-port", "rdzv-endpoint", "rdzv-id"}

// TorchSpread reports whether torchrun is to be started on n nodes by fabrun:
// the user has arranged nothing himself, or only the number of nodes, rightly.
// why says what stands against it; "" when nothing does, or when it is not
// about torchrun at all.
func (c Command) TorchSpread(env []string, n int) (spread bool, why string) {
	if c.Launcher.Dialect != Torchrun || n < 2 || len(c.contexts) == 0 {
		return false, ""
	}
	ctx := c.contexts[0]
	for _, name := range torchOwn {
		if o := ctx.last(name); o != nil {
			return false, c.Argv[o.at] + " is given: torchrun is started here only"
		}
		if v := petVar(name); mustLookup(env, v) != "" {
			return false, v + " is set: torchrun is started here only"
		}
	}
	nodes := mustLookup(env, petVar("nnodes"))
	if o := ctx.last("nnodes"); o != nil && len(o.values) > 0 {
		nodes = o.values[0]
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

// TorchRestarts reports whether torchrun is to start workers again that fail.
func (c Command) TorchRestarts(env []string) bool {
	restarts := mustLookup(env, petVar("max-restarts"))
	if len(c.contexts) > 0 {
		if o := c.contexts[0].last("max-restarts"); o != nil && len(o.values) > 0 {
			restarts = o.values[0]
		}
	}
	return restarts != "" && restarts != "0"
}

func petVar(option string) string {
	return "PET_" + strings.ToUpper(strings.ReplaceAll(option, "-", "_"))
}

// TorchNode adds to a plan for torchrun what one of its nodes needs: how many
// there are, which one it is, and where they meet. The static rendezvous takes
// its ranks from the order of the hosts and its store from node 0, whatever that
// machine calls itself. For c10d, which compares the endpoint with the names of
// the machine and is often wrong, node 0 is told that it is the host.
func TorchNode(p Plan, c Command, node, n int, master string, port int) Plan {
	ctx := c.contexts[0]
	if ip, err := netip.ParseAddr(master); err == nil && ip.Is6() {
		master = "[" + master + "]"
	}
	// Underscores: PyTorch before 2.0 has no dashed spellings.
	var words []string
	if ctx.last("nnodes") == nil {
		words = append(words, "--nnodes="+strconv.Itoa(n))
	}
	backend := ctx.last("rdzv-backend")
	if backend != nil && len(backend.values) > 0 && backend.values[0] != "static" {
		words = append(words, fmt.Sprintf("--rdzv_endpoint=%s:%d", master, port), "--rdzv_id=fabrun-"+strconv.Itoa(port))
		if backend.values[0] == "c10d" && ctx.last("rdzv-conf") == nil {
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

// nodeVars are the variables that a program started by ssh on another node
// needs as it has them here. Tokens and keys are not among them: what is sent
// can be seen there.
var nodeVars = []string{
	"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
	"HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "TORCH_HOME", "XDG_CACHE_HOME", "LOGLEVEL", "TZ", "LANG", "LC_ALL",
}

// NodeEnv is the environment of a program that fabrun itself starts on a node:
// what the plan sets, and what of the user's own such a program needs.
func NodeEnv(p Plan, env []string) []string {
	var out []string
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || slices.ContainsFunc(p.Env, func(v envgen.Var) bool { return v.Name == name }) {
			continue
		}
		keep := isLibraryVar(name) || slices.Contains(nodeVars, name) || slices.Contains(forwardNames, name)
		for _, prefix := range []string{"OMP_", "MKL_", "KMP_", "CUDA_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "PET_", "TRITON_", "HSA_"} {
			keep = keep || strings.HasPrefix(name, prefix)
		}
		if keep && name != "CUDA_VISIBLE_DEVICES" {
			out = append(out, kv)
		}
	}
	for _, v := range p.Env {
		out = append(out, v.Name+"="+v.Value)
	}
	return out
}
