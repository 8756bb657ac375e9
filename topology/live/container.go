package live

import (
	"io/fs"
	"strings"
)

// firstPIDs is the name of the PID namespace that a machine begins with: its
// number is fixed (PROC_PID_INIT_INO, include/linux/proc_ns.h).
const firstPIDs = "pid:[4026531836]"

// container looks for the marks that container runtimes leave, the most
// particular first: Apptainer inside a pod is Apptainer. A variable alone proves
// nothing on a machine's own root file system: srun and ssh carry variables out
// of the container in which they are started.
func (m *machine) container() ([]byte, error) {
	say := func(kind, why string) ([]byte, error) { return []byte(kind + " " + why + "\n"), nil }
	root := mountedRoot(m.read("proc/self/mountinfo"))
	set := func(names ...string) string {
		for _, name := range names {
			if !root.machine && m.getenv(name) != "" {
				return name + " is set"
			}
		}
		return ""
	}
	if why := set("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "APPTAINER_NAME", "SINGULARITY_NAME"); why != "" {
		return say("apptainer", why)
	}
	if m.exists(".singularity.d") {
		return say("apptainer", "/.singularity.d is there")
	}
	switch {
	case strings.Contains(root.line, "/pyxis_"): // NVIDIA/pyxis names what it makes pyxis_<job>.<step>
		return say("pyxis", "the root file system is pyxis'")
	case strings.Contains(root.line, "/enroot"):
		return say("enroot", "the root file system is enroot's")
	}
	if why := set("ENROOT_ROOTFS"); why != "" {
		return say("enroot", why)
	}
	if why := set("CH_RUNNING"); why != "" {
		return say("charliecloud", why)
	}
	for _, dir := range []string{"var/run/secrets/kubernetes.io", "run/secrets/kubernetes.io"} {
		if m.exists(dir) {
			return say("kubernetes", "/"+dir+" is there")
		}
	}
	if why := set("KUBERNETES_SERVICE_HOST"); why != "" {
		return say("kubernetes", why)
	}
	group := m.read("proc/self/cgroup")
	if strings.Contains(group, "/kubepods") { // a pod without service account and service links
		return say("kubernetes", "the control group is a pod's")
	}
	if m.exists(".dockerenv") {
		return say("docker", "/.dockerenv is there")
	}
	if m.exists("run/.containerenv") {
		return say("podman", "/run/.containerenv is there")
	}
	if !root.machine {
		switch v := m.getenv("container"); v { // systemd.io/CONTAINER_INTERFACE
		case "":
		case "lxc", "podman", "docker", "systemd-nspawn":
			return say(v, "container="+v+" is set")
		default:
			return say("unknown", "container is set")
		}
	}
	for _, mark := range []struct{ in, has, kind, why string }{
		{root.line, "/docker/", "docker", "the root file system is docker's"},
		{root.line, "/containers/storage/", "podman", "the root file system is podman's"},
		{root.line, "io.containerd", "unknown", "the root file system is containerd's"},
		{group, "/docker/", "docker", "the control group is docker's"},
		{group, "/docker-", "docker", "the control group is docker's"},
		{group, "/lxc.payload", "lxc", "the control group is LXC's"},
	} {
		if strings.Contains(mark.in, mark.has) {
			return say(mark.kind, mark.why)
		}
	}
	// An overlay alone is a machine without disks, or a live system.
	if pids, err := fs.ReadLink(m.root, "proc/self/ns/pid"); err == nil && pids != firstPIDs && !root.machine {
		return say("unknown", "a PID namespace and a root file system of its own")
	}
	return []byte{}, nil
}

// rootMount is the line of proc/self/mountinfo that is about "/".
type rootMount struct {
	line    string
	machine bool // the whole of a block device
}

func mountedRoot(mountinfo string) rootMount {
	var root rootMount
	for line := range strings.Lines(mountinfo) {
		// "id parent major:minor root mountpoint options … - type source superoptions"
		w := strings.Fields(line)
		if len(w) < 5 || w[4] != "/" {
			continue
		}
		_, behind, _ := strings.Cut(line, " - ")
		source := strings.Fields(behind)
		root = rootMount{line: line, machine: w[3] == "/" && len(source) > 1 && strings.HasPrefix(source[1], "/dev/")}
	}
	return root
}

// ContainerKind names the runtime of the container that this process is in; ""
// none seen.
func ContainerKind(env []string) string {
	m := &machine{root: thisMachine(), path: "/", opts: Options{Env: env}}
	//nolint:errcheck // it gives none
	text, _ := m.container()
	kind, _, _ := strings.Cut(string(text), " ")
	return kind
}
