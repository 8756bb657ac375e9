package topology

import (
	"slices"
	"strings"
)

// Container is what the process sees of being inside one.
type Container struct {
	Kind string // of runtimes; "unknown" a container of whatever runtime; "" none seen
	// Why names the evidence: the file or variable that gave it away.
	Why string
}

// Need is something of the host that a container has only where it is given.
type Need uint8

// The needs of RDMA jobs.
const (
	NeedDevices Need = iota // /dev/infiniband
	NeedMemlock             // memory to lock
	NeedShm                 // a large /dev/shm
	NeedNetwork             // the interface and the addresses of the port
	NeedSys                 // /sys/class/infiniband
	needs
)

// What the runtimes that most people meet are told, where nothing says which it is.
const (
	GiveDevices = "docker, podman: --device=/dev/infiniband; Kubernetes: the resource of an RDMA device plugin"
	GiveMemlock = "docker, podman: --ulimit memlock=-1; Kubernetes: the capability IPC_LOCK"
	GiveShm     = "docker, podman: --shm-size=16g or --ipc=host; Kubernetes: an emptyDir with medium: Memory at /dev/shm"
	GiveNetwork = "docker, podman: --network=host; Kubernetes: hostNetwork: true, or a second interface of the fabric (SR-IOV)"
	GiveIPC     = "docker, podman: --ipc=host; Kubernetes: one pod for the ranks of a node"
)

// runtime is how one container runtime is given what jobs need.
type runtime struct {
	kind    string
	command string        // its options stand behind this; "" they are no options
	gives   [needs]string // "" it has nothing of its own for that
}

// Options that several runtimes share.
const (
	inherited = "a limit of whoever starts it: ulimit -l unlimited before (Slurm: LimitMEMLOCK=infinity of slurmd, PropagateResourceLimitsExcept=MEMLOCK)"
	hostShm   = "/dev/shm is the host's own: mount -o remount,size=50% /dev/shm there (as root)"
	hostNet   = "the network is the host's own: look there"
)

// runtimes is the one table of what each runtime is told. Sources: the references of
// docker run and podman-run(1), Apptainer's user guide (bind paths, --contain, --net),
// NVIDIA/enroot conf/mounts/10-system.fstab, conf/hooks/10-devices.sh and 99-mellanox.sh,
// NVIDIA/pyxis README, the Kubernetes API reference (PodSpec), lxc.container.conf(5),
// systemd-nspawn(1), ch-run(1). Kubernetes sets no limits: IPC_LOCK lifts root's
// (and only root's, as no ambient capabilities are given), others have the node's.
var runtimes = []runtime{
	{"docker", "docker run", [needs]string{
		"--device=/dev/infiniband", "--ulimit memlock=-1", "--shm-size=16g (or --ipc=host)", "--network=host", "--network=host -v /sys:/sys:ro",
	}},
	{"podman", "podman run", [needs]string{
		"--device=/dev/infiniband", "--ulimit memlock=-1 (rootless: up to the user's own hard limit)", "--shm-size=16g (or --ipc=host)", "--network=host", "--network=host -v /sys:/sys:ro",
	}},
	{"kubernetes", "", [needs]string{
		"resources.limits of the container: the resource of an RDMA device plugin (rdma/…)",
		"securityContext of the container: capabilities: {add: [IPC_LOCK]} (users other than root: LimitMEMLOCK=infinity of the node's containerd)",
		"volumes: an emptyDir with medium: Memory, mounted at /dev/shm",
		"hostNetwork: true with dnsPolicy: ClusterFirstWithHostNet, or a second interface of the fabric (SR-IOV network)",
		"hostNetwork: true, or an SR-IOV network whose plugin moves the RDMA device along",
	}},
	{"apptainer", "", [needs]string{
		"apptainer shows the host's own /dev: leave out --contain, --containall and 'mount dev = minimal', or --bind /dev/infiniband",
		inherited,
		"apptainer shows the host's own /dev/shm: leave out --contain and --containall, or --bind /dev/shm",
		"apptainer has the host's own network: leave out --net",
		"apptainer shows the host's own /sys: leave out --no-mount sys and 'mount sys = no'",
	}},
	{"pyxis", "", [needs]string{
		"MELLANOX_VISIBLE_DEVICES=all srun --container-image=… (or --container-mounts=/dev/infiniband:/dev/infiniband)",
		inherited, hostShm, hostNet,
		"MELLANOX_VISIBLE_DEVICES=all srun --container-image=…",
	}},
	{"enroot", "", [needs]string{
		"MELLANOX_VISIBLE_DEVICES=all enroot start … (or enroot start --mount /dev/infiniband:/dev/infiniband)",
		inherited, hostShm, hostNet,
		"MELLANOX_VISIBLE_DEVICES=all enroot start …",
	}},
	{"charliecloud", "", [needs]string{
		"ch-run shows the host's own /dev: look there", inherited,
		"ch-run shows the host's own /dev/shm unless --private-tmp or a bind hides it", hostNet, "ch-run shows the host's own /sys: look there",
	}},
	{"lxc", "", [needs]string{
		"lxc.mount.entry = /dev/infiniband dev/infiniband none bind,create=dir and lxc.cgroup2.devices.allow = c 231:* rwm",
		"lxc.prlimit.memlock = unlimited", "lxc.mount.entry = tmpfs dev/shm tmpfs size=50%,create=dir", "lxc.net.0.type = none (or phys)", "lxc.mount.auto = sys:ro",
	}},
	{"systemd-nspawn", "systemd-nspawn", [needs]string{
		"--bind=/dev/infiniband --property=DeviceAllow='char-infiniband_verbs rwm'", "--rlimit=MEMLOCK=infinity", "--tmpfs=/dev/shm:size=50%", "(without --private-network)", "--bind-ro=/sys",
	}},
	// Last: what OCI runtimes share, where it is not known which one it is.
	{"unknown", "docker or podman run", [needs]string{
		"--device=/dev/infiniband", "--ulimit memlock=-1", "--shm-size=16g", "--network=host", "--network=host -v /sys:/sys:ro",
	}},
}

// runtimeOf returns the row of a kind, or that of unknown containers.
func runtimeOf(kind string) runtime {
	i := slices.IndexFunc(runtimes, func(r runtime) bool { return r.kind == kind })
	if i < 0 {
		i = len(runtimes) - 1
	}
	return runtimes[i]
}

// Give says how the runtime of this container is told to give what is needed; ""
// outside of a container.
func (c Container) Give(wanted ...Need) string {
	if c.Kind == "" {
		return ""
	}
	r := runtimeOf(c.Kind)
	var parts []string
	for _, n := range wanted {
		if !slices.Contains(parts, r.gives[n]) {
			parts = append(parts, r.gives[n])
		}
	}
	if r.command == "" {
		return strings.Join(parts, "; ")
	}
	return r.command + " " + strings.Join(parts, " ")
}

// GiveRDMA is everything that a container has to be given for RDMA.
func (c Container) GiveRDMA() string { return c.Give(NeedDevices, NeedMemlock, NeedNetwork) }
