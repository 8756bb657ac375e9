package cmdline

import (
	"slices"
	"strings"

	"fabrun/topology"
)

// gives says what an option of docker's family gives a container of what RDMA
// needs. What may give it is taken for giving it: a device by the name of a CDI
// kind, a bind of /dev (which rootless runtimes do not guard), a network that
// somebody made.
func gives(option, value string) []topology.Need {
	source, target := value, value // of a bind: SOURCE:TARGET[:OPTIONS]
	if from, to, ok := strings.Cut(value, ":"); ok {
		source = from
		target, _, _ = strings.Cut(to, ":")
	}
	switch option {
	case "--privileged":
		return []topology.Need{topology.NeedDevices, topology.NeedMemlock}
	case "--device":
		if strings.HasPrefix(source, "/dev/infiniband") || !strings.HasPrefix(source, "/") && !strings.Contains(source, "gpu") {
			return []topology.Need{topology.NeedDevices}
		}
	case "--cap-add":
		if name := strings.TrimPrefix(strings.ToUpper(value), "CAP_"); name == "IPC_LOCK" || name == "ALL" {
			return []topology.Need{topology.NeedMemlock}
		}
	case "--ulimit":
		if strings.HasPrefix(value, "memlock=") || value == "host" {
			return []topology.Need{topology.NeedMemlock}
		}
	case "--network", "--net":
		name, _, _ := strings.Cut(value, ":")
		if value != "" && !slices.Contains([]string{"bridge", "default", "none", "private", "slirp4netns", "pasta"}, name) {
			return []topology.Need{topology.NeedNetwork}
		}
	case "--ipc":
		if value == "host" || strings.HasPrefix(value, "container:") {
			return []topology.Need{topology.NeedShm}
		}
	case "--shm-size":
		return []topology.Need{topology.NeedShm}
	case "-e", "--env":
		if value == "NVIDIA_MOFED=enabled" { // nvidia-container-toolkit mounts /dev/infiniband
			return []topology.Need{topology.NeedDevices}
		}
	case "-B", "--bind": // apptainer's, several with commas between them
		var out []topology.Need
		for bind := range strings.SplitSeq(value, ",") {
			out = append(out, gives("-v", bind)...)
		}
		return out
	case "-v", "--volume", "--mount", "--tmpfs":
		if option == "--mount" { // type=bind,source=…,target=…
			for field := range strings.SplitSeq(value, ",") {
				if k, v, _ := strings.Cut(field, "="); slices.Contains([]string{"target", "dst", "destination"}, k) {
					target = v
				}
			}
		}
		switch {
		case target == "/dev":
			return []topology.Need{topology.NeedDevices, topology.NeedShm}
		case strings.HasPrefix(target, "/dev/infiniband"):
			return []topology.Need{topology.NeedDevices}
		case target == "/dev/shm":
			return []topology.Need{topology.NeedShm}
		}
	}
	return nil
}

// asks says what is needed on account of an option: what apptainer hides with it
// that it shows by itself, and the shared memory of GPUs' ranks.
func (r runtime) asks(option, value string) []topology.Need {
	switch {
	case !r.list && (option == "--gpus" || option == "--device" && strings.Contains(value, "/gpu=") || option == "--runtime" && value == "nvidia"):
		return []topology.Need{topology.NeedShm}
	case r.list && slices.Contains([]string{"-c", "--contain", "-C", "--containall"}, option):
		return []topology.Need{topology.NeedDevices, topology.NeedShm}
	case r.list && (option == "-n" || option == "--net"):
		return []topology.Need{topology.NeedNetwork}
	}
	return nil
}

// Missing are the needs that a container is not given by the words in front of its
// image; of one that runs already, or whose options could not be read, none.
func (w Wrapped) Missing() []topology.Need {
	if w.Image < 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(w.lacks), func(n topology.Need) bool { return slices.Contains(w.given, n) })
}
