package lint

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// pod is a container of a manifest with what its pod gives it.
type pod struct {
	line  int
	name  string
	pods  int // of the job, as far as the manifest says; 0 it is no job
	gpus  int // that one container gets; -1 some
	rdma  bool
	limit []*yaml.Node // extended resources that are requested and not limited

	locks   bool // IPC_LOCK, or privileged
	claims  bool // devices come by dynamic resource allocation
	shm     bool // /dev/shm is a volume in memory, or the host's
	network *yaml.Node
	dns     string
	values  []*yaml.Node // values of env that are no strings
	ours    bool         // sets variables of communication libraries
}

// field is the value of a mapping's key; nil where there is none.
func field(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		n = follow(n)
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		var value *yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				value = n.Content[i+1]
			}
		}
		n = value
	}
	return follow(n)
}

// follow goes to what an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	for range maxDepth {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}

func list(n *yaml.Node) []*yaml.Node {
	if n = follow(n); n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

func text(n *yaml.Node) string {
	if n = follow(n); n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

func number(n *yaml.Node) int {
	v, err := strconv.Atoi(text(n))
	if err != nil {
		return 0
	}
	return v
}

// documents reads YAML as far as it goes.
func documents(src string) ([]*yaml.Node, error) {
	var out []*yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(src))
	for range 1000 {
		var n yaml.Node
		if err := dec.Decode(&n); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, err
		}
		if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
			out = append(out, n.Content[0])
		}
	}
	return out, nil
}

var (
	manifestLine = lazy(`(?m)^\s*["']?(?:apiVersion|kind)["']?\s*:`)
	yamlError    = lazy(`line (\d+)`)
)

// isManifest tells by the two keys that every object of Kubernetes has.
func isManifest(lines []string) bool {
	src := strings.Join(lines, "\n")
	return len(manifestLine().FindAllString(src, 3)) > 1 && strings.Contains(src, "apiVersion") && strings.Contains(src, "kind")
}

// manifest reads each container of each pod as a script of its own.
func (s *Script) manifest() {
	docs, err := documents(strings.Join(s.lines, "\n"))
	if err != nil {
		line := 1
		if m := yamlError().FindStringSubmatch(err.Error()); m != nil {
			line, _ = strconv.Atoi(m[1])
		}
		why := "no YAML from here on: " + strings.TrimPrefix(err.Error(), "yaml: ")
		if strings.Contains(strings.Join(s.lines, "\n"), "{{") {
			why = "a template: render it first ('helm template …'), and read what comes out"
		}
		s.Unread = append(s.Unread, Unread{max(line, 1), why})
	}
	for _, doc := range docs {
		objects := []*yaml.Node{doc}
		if text(field(doc, "kind")) == "List" {
			objects = list(field(doc, "items"))
		}
		for _, o := range objects {
			left := maxEvents
			s.podsIn(o, o, &left)
		}
	}
}

// podsIn looks for pod templates, whatever kind of object they are in.
func (s *Script) podsIn(object, n *yaml.Node, left *int) {
	if *left--; *left < 0 || n == nil {
		return
	}
	if n = follow(n); n == nil {
		return
	}
	if containers := list(field(n, "containers")); len(containers) > 0 && text(field(containers[0], "name")) != "" {
		for _, c := range slices.Concat(list(field(n, "initContainers")), containers) {
			if c = follow(c); c != nil && c.Kind == yaml.MappingNode {
				s.parts = append(s.parts, s.containerOf(object, n, c))
			}
		}
		return
	}
	for _, child := range n.Content {
		s.podsIn(object, child, left)
	}
}

// services are kinds whose pods are not ranks of one job.
var services = []string{"Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Pod", "CronJob"}

// podsOf counts the pods that work on one job, as its controller makes them.
func podsOf(n *yaml.Node, depth int) int {
	if n = follow(n); n == nil || depth > 12 {
		return 0
	}
	most := 0
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		switch {
		case strings.HasSuffix(key, "ReplicaSpecs"): // Kubeflow: by role
			sum := 0
			for j := 0; value.Kind == yaml.MappingNode && j+1 < len(value.Content); j += 2 {
				if value.Content[j].Value != "Launcher" {
					sum += max(number(field(value.Content[j+1], "replicas")), 1)
				}
			}
			most = max(most, sum)
		case key == "parallelism" || key == "numNodes" || key == "size" && field(n, "workerTemplate") != nil:
			most = max(most, number(value))
		}
		most = max(most, podsOf(value, depth+1))
	}
	if n.Kind == yaml.SequenceNode {
		for _, c := range n.Content {
			most = max(most, podsOf(c, depth+1))
		}
	}
	return most
}

func (s *Script) containerOf(object, spec, c *yaml.Node) *Script {
	part := &Script{Name: s.Name, lines: s.lines, unset: map[string]bool{}}
	p := &pod{line: c.Line, name: text(field(c, "name")), dns: text(field(spec, "dnsPolicy"))}
	part.pod = p
	if !slices.Contains(services, text(field(object, "kind"))) {
		p.pods = podsOf(object, 0)
	}
	p.resources(c)
	p.claims = len(list(field(spec, "resourceClaims"))) > 0
	sec := field(c, "securityContext")
	p.locks = text(field(sec, "privileged")) == "true" || slices.ContainsFunc(list(field(sec, "capabilities", "add")), func(n *yaml.Node) bool {
		return slices.Contains([]string{"IPC_LOCK", "CAP_IPC_LOCK", "ALL"}, text(n))
	})
	if n := field(spec, "hostNetwork"); text(n) == "true" {
		p.network = n
	}
	p.mounts(spec, c)
	for _, e := range list(field(c, "env")) {
		name, value := text(field(e, "name")), field(e, "value")
		p.ours = p.ours || isOurs(name)
		if value == nil || value.Kind != yaml.ScalarNode || name == "" {
			continue
		}
		if !isString(value) {
			p.values = append(p.values, value)
		}
		part.Settings = append(part.Settings, Setting{Name: name, Value: Word{Text: value.Value, Static: !strings.Contains(value.Value, "$("), Line: value.Line}, Line: value.Line, How: PodEnv, Launch: -1})
	}
	var words []string
	line := c.Line
	for _, key := range []string{"command", "args"} {
		for _, w := range list(field(c, key)) {
			if len(words) == 0 {
				line = w.Line
			}
			words = append(words, text(w))
		}
	}
	part.command(words, line)
	return part
}

// isString says whether the API takes a value of env as it stands; what YAML 1.1
// takes for a boolean is one (sigs.k8s.io/yaml).
func isString(n *yaml.Node) bool {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0 {
		return true
	}
	return n.ShortTag() == "!!str" && !slices.Contains([]string{"yes", "no", "on", "off", "y", "n"}, strings.ToLower(n.Value)) || n.ShortTag() == "!!null"
}

func (p *pod) resources(c *yaml.Node) {
	limits, requests := field(c, "resources", "limits"), field(c, "resources", "requests")
	for i := 0; limits != nil && i+1 < len(limits.Content); i += 2 {
		name, n := limits.Content[i].Value, number(limits.Content[i+1])
		switch {
		case name == "nvidia.com/gpu" || name == "amd.com/gpu":
			p.gpus = n
		case strings.HasPrefix(name, "nvidia.com/mig-"):
			p.gpus = max(p.gpus, 1)
		case deviceName().MatchString(name):
			p.rdma = p.rdma || n != 0
		}
	}
	for i := 0; requests != nil && i+1 < len(requests.Content); i += 2 {
		// Extended resources have a domain; requests of them must have a limit (API: "must be set for non overcommitable resources").
		if key := requests.Content[i]; strings.Contains(key.Value, "/") && !strings.HasPrefix(key.Value, "kubernetes.io/") && field(limits, key.Value) == nil {
			p.limit = append(p.limit, key)
		}
	}
}

// deviceName is how device plugins call network devices: Mellanox's shared and
// SR-IOV plugins, the EFA plugin, Intel's, and what sites make of them.
var deviceName = lazy(`(?i)^rdma/|rdma|roce|/hca|/efa$|infiniband|sriov|/ib|mlnx|mellanox\.com/|erdma|/nic`)

func (p *pod) mounts(spec, c *yaml.Node) {
	p.shm = text(field(spec, "hostIPC")) == "true"
	volumes := map[string]*yaml.Node{}
	for _, v := range list(field(spec, "volumes")) {
		volumes[text(field(v, "name"))] = v
	}
	for _, m := range list(field(c, "volumeMounts")) {
		v := volumes[text(field(m, "name"))]
		switch at := strings.TrimSuffix(text(field(m, "mountPath")), "/"); {
		case at == "/dev/shm":
			p.shm = v == nil || field(v, "emptyDir") == nil || text(field(v, "emptyDir", "medium")) == "Memory"
		case at == "/dev" || strings.HasPrefix(at, "/dev/infiniband"):
			p.rdma = true
		}
	}
}

func (s *Script) inPod(find func(p *pod) []Problem) []Problem {
	if s.pod == nil {
		return nil
	}
	return find(s.pod)
}

var kubernetes = topology.Container{Kind: "kubernetes"}

func podLocks(s *Script) []Problem {
	return s.inPod(func(p *pod) []Problem {
		if !p.rdma || p.locks {
			return nil
		}
		return []Problem{problem(p.line, p.name, finding.Warning, p.name+" has an RDMA device and not the capability IPC_LOCK", "IPC_LOCK", "the node's limit of locked memory counts, which is 64 KiB or 8 MiB by default: memory registration fails", kubernetes.Give(topology.NeedMemlock), "")}
	})
}

// podDevices: ranks in several pods that have GPUs talk over the network, and
// without a device over TCP. A pod on its node's network that is privileged has
// the node's devices, and claims may be of any.
func podDevices(s *Script) []Problem {
	return s.inPod(func(p *pod) []Problem {
		if p.pods < 2 || p.gpus == 0 || p.rdma || p.claims || p.network != nil && p.locks {
			return nil
		}
		return []Problem{problem(p.line, p.name, finding.Warning, p.name+" is one of "+strconv.Itoa(p.pods)+" pods with GPUs, and gets no RDMA device", "a device plugin's resource", "NCCL goes over TCP between the pods", kubernetes.Give(topology.NeedDevices), "")}
	})
}

func podShm(s *Script) []Problem {
	return s.inPod(func(p *pod) []Problem {
		if p.shm || p.gpus < 2 {
			return nil
		}
		return []Problem{problem(p.line, p.name, finding.Warning, p.name+" has "+strconv.Itoa(p.gpus)+" GPUs and a /dev/shm of 64 MiB, or one on disk", "a volume in memory at /dev/shm", "ranks of a pod exchange data there: NCCL and data loaders fail when it is full", kubernetes.Give(topology.NeedShm), "")}
	})
}

func podNames(s *Script) []Problem {
	return s.inPod(func(p *pod) []Problem {
		if p.network == nil || p.dns != "" || p.pods < 2 {
			return nil
		}
		return []Problem{problem(p.network.Line, "hostNetwork", finding.Warning, "hostNetwork without dnsPolicy", "dnsPolicy: ClusterFirstWithHostNet", "the node's resolver does not know the other pods' names: the rendezvous fails", "dnsPolicy: ClusterFirstWithHostNet", "")}
	})
}

func podLimits(s *Script) []Problem {
	return s.inPod(func(p *pod) []Problem {
		var out []Problem
		for _, n := range p.limit {
			out = append(out, problem(n.Line, n.Value, finding.Error, n.Value+" is requested and not limited", "the same number in limits", "the API refuses the pod", "limits: {"+n.Value+": …}", ""))
		}
		return out
	})
}

func podStrings(s *Script) []Problem {
	return s.inPod(func(p *pod) []Problem {
		var out []Problem
		for _, n := range p.values {
			fix := ""
			if old := regexp.MustCompile(`(value:\s*)` + regexp.QuoteMeta(n.Value) + `(\s*[,}#].*|\s*)$`); old.MatchString(s.at(n.Line)) {
				fix = old.ReplaceAllString(s.at(n.Line), `${1}"`+strings.ReplaceAll(n.Value, "$", "$$")+`"${2}`)
			}
			out = append(out, problem(n.Line, "value", finding.Error, "the value "+n.Value+" is no string", strconv.Quote(n.Value), "the API refuses the manifest: a value of env is a string", "quote it", fix))
		}
		return out
	})
}
