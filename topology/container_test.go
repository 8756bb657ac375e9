package topology

import (
	"strings"
	"testing"
)

// TestContainerGives: every need has an answer of every runtime, in that runtime's
// own words, and what is said where none is known is said of those as well.
func TestContainerGives(t *testing.T) {
	own := map[string][]string{ // words of one runtime that no other is told
		"docker": {"docker run"}, "podman": {"podman run", "rootless"}, "kubernetes": {"securityContext", "emptyDir", "hostNetwork"},
		"apptainer": {"apptainer", "--containall"}, "pyxis": {"srun"}, "enroot": {"enroot start"}, "lxc": {"lxc."}, "systemd-nspawn": {"systemd-nspawn", "--rlimit"},
	}
	for _, r := range runtimes {
		c := Container{Kind: r.kind}
		for n := range needs {
			if r.gives[n] == "" || !strings.Contains(c.Give(n), r.gives[n]) {
				t.Errorf("%s: need %d: %q", r.kind, n, c.Give(n))
			}
		}
		all := c.Give(NeedDevices, NeedMemlock, NeedShm, NeedNetwork, NeedSys)
		for kind, words := range own {
			for _, word := range words {
				if has := strings.Contains(all, word); has != (kind == r.kind) && !(kind == "docker" && r.kind == "unknown" || kind == "podman" && r.kind == "unknown") {
					t.Errorf("%s: %q is said: %v: %s", r.kind, word, has, all)
				}
			}
		}
	}
	if got := (Container{}).Give(NeedDevices); got != "" {
		t.Errorf("no container: %q", got)
	}
	// A runtime that the table does not know is one that takes OCI's common options.
	if got := (Container{Kind: "youki"}).GiveRDMA(); got != "docker or podman run --device=/dev/infiniband --ulimit memlock=-1 --network=host" {
		t.Errorf("another kind: %q", got)
	}
	for need, text := range map[Need]string{NeedDevices: GiveDevices, NeedMemlock: GiveMemlock, NeedShm: GiveShm, NeedNetwork: GiveNetwork} {
		for _, kind := range []string{"docker", "podman"} {
			option := strings.Fields(runtimeOf(kind).gives[need])[0]
			if !strings.Contains(text, option) {
				t.Errorf("%q: without %s's %s", text, kind, option)
			}
		}
		if !strings.Contains(text, "Kubernetes: ") {
			t.Errorf("%q: without Kubernetes", text)
		}
	}
}
