package live

import (
	"strings"
	"testing"
	"testing/fstest"

	"fabrun/topology/discover"
)

// TestContainerKinds: each runtime by its own marks; and what is no container
// although something of one is about.
func TestContainerKinds(t *testing.T) {
	const (
		disk    = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
		overlay = "1 0 0:50 / / rw - overlay overlay rw,lowerdir=/run/live/rootfs\n"
		own     = "-> pid:[4026532281]"
		first   = "-> pid:[4026531836]"
	)
	for _, tc := range []struct {
		name  string
		files fstest.MapFS
		env   []string
		want  string // kind and part of the evidence; "" none
	}{
		{"a pod", tree("run/secrets/kubernetes.io/serviceaccount/namespace", "default", ".dockerenv", ""), nil, "kubernetes /run/secrets/kubernetes.io"},
		{"a pod without service account", tree("proc/self/mountinfo", overlay), []string{"KUBERNETES_SERVICE_HOST=10.0.0.1"}, "kubernetes KUBERNETES_SERVICE_HOST"},
		{"a pod with neither", tree("proc/self/cgroup", "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope\n", "run/.containerenv", ""), nil, "kubernetes the control group"},
		{"Apptainer inside a pod is Apptainer", nil, []string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "APPTAINER_CONTAINER=/x.sif"}, "apptainer APPTAINER_CONTAINER"},
		{"Apptainer by its image", tree(".singularity.d/env/01-base.sh", "", "proc/self/mountinfo", disk), nil, "apptainer /.singularity.d"},
		{"Apptainer from a directory", tree("proc/self/mountinfo", overlay), []string{"APPTAINER_NAME=rootfs"}, "apptainer APPTAINER_NAME"},
		{"enroot", tree("proc/self/mountinfo", "1 0 0:50 / / rw - overlay overlay rw,lowerdir=/var/lib/enroot-data/user-1/x\n"), nil, "enroot "},
		{"pyxis in a directory of enroot's", tree("proc/self/mountinfo", "1 0 8:3 /enroot/data/user-1/pyxis_77.0 / rw - xfs /dev/nvme0n1p3 rw\n"), nil, "pyxis "},
		{"charliecloud", tree("proc/self/mountinfo", overlay), []string{"CH_RUNNING=Weird Al Yankovic"}, "charliecloud "},
		{"docker", tree(".dockerenv", "", "proc/self/mountinfo", overlay), nil, "docker /.dockerenv"},
		{"docker on a block device, as devicemapper makes", tree(".dockerenv", "", "proc/self/mountinfo", disk), nil, "docker "},
		{"podman", tree("run/.containerenv", ""), []string{"container=podman"}, "podman /run/.containerenv"},
		{"podman --rootfs without the file", tree("proc/self/mountinfo", "1 0 8:1 /home/me/rootfs / rw - ext4 /dev/sda1 rw\n"), []string{"container=podman"}, "podman container=podman"},
		{"lxc", tree("proc/self/mountinfo", overlay), []string{"container=lxc"}, "lxc "},
		{"lxc seen from a shell without variables", tree("proc/self/cgroup", "0::/lxc.payload.n1/user.slice\n", "proc/self/mountinfo", overlay), nil, "lxc the control group"},
		{"containerd alone", tree("proc/self/mountinfo", "1 0 0:50 / / rw - overlay overlay rw,lowerdir=/run/io.containerd/x\n"), nil, "unknown "},
		{"another runtime", tree("proc/self/mountinfo", overlay, "proc/self/ns/pid", own), nil, "unknown a PID namespace"},

		{"a machine", tree("proc/self/mountinfo", disk, "proc/self/ns/pid", first), nil, ""},
		{"a machine without disks", tree("proc/self/mountinfo", overlay, "proc/self/ns/pid", first), nil, ""},
		{"a shell of its own PID namespace on a machine", tree("proc/self/mountinfo", disk, "proc/self/ns/pid", own), nil, ""},
		{"a step that srun started from within Apptainer", tree("proc/self/mountinfo", disk), []string{"APPTAINER_NAME=x.sif", "APPTAINER_CONTAINER=/x.sif"}, ""},
		{"a job that a login pod submitted", tree("proc/self/mountinfo", disk), []string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "container=oci"}, ""},
		{"a machine that runs docker, podman and kubelet", tree("proc/self/mountinfo", disk+"90 1 0:60 / /var/lib/docker/overlay2/1/merged rw - overlay overlay rw\n",
			"proc/self/cgroup", "0::/system.slice/docker.service\n", "var/lib/kubelet/config.yaml", "", "etc/containers/storage.conf", ""), nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOverlay(t.Context(), tc.files, t.TempDir(), Options{Env: tc.env})
			got := section(t, o, discover.SectionContainer)
			if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
