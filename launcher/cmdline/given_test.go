package cmdline

import (
	"strings"
	"testing"

	"fabrun/topology"
)

// TestMissing: what a container's options do not give, by runtime, and what gives
// it in another way.
func TestMissing(t *testing.T) {
	names := map[topology.Need]string{topology.NeedDevices: "devices", topology.NeedMemlock: "memlock", topology.NeedShm: "shm", topology.NeedNetwork: "network"}
	for words, want := range map[string]string{
		"docker run --rm img ./a.out": "devices memlock network",
		"docker run --rm --gpus all --network host --ulimit memlock=-1 --device /dev/infiniband img ./a.out":          "shm",
		"docker run --gpus=all --ipc=host --net=host --cap-add=IPC_LOCK --device=/dev/infiniband/uverbs0 img ./a.out": "",
		"docker run --privileged --network host img ./a.out":                                                          "",
		"docker run --network none -v /dev/infiniband:/dev/infiniband --ulimit memlock=-1:-1 img ./a.out":             "network",
		"docker run --network rdma-macvlan --device=mellanox.com/net=all --ulimit memlock=-1 img ./a.out":             "",
		"docker run --device nvidia.com/gpu=all --network host img ./a.out":                                           "devices memlock shm",
		"docker run -e NVIDIA_MOFED=enabled --network host --cap-add CAP_IPC_LOCK img ./a.out":                        "",
		"docker exec c1 ./a.out": "",
		"docker run":             "",
		"podman run -it --rm --net host --ulimit host -v /dev:/dev img ./a.out --network none":                   "",
		"podman run --mount type=bind,source=/dev/infiniband,target=/dev/infiniband --network=pasta img ./a.out": "memlock network",
		"nerdctl run --network host img ./a.out":                                                                 "devices memlock",
		"apptainer exec img.sif ./a.out":                                                                         "",
		"apptainer exec -c img.sif ./a.out":                                                                      "devices shm",
		"apptainer exec --containall --bind /scratch,/dev/infiniband --bind /dev/shm img.sif ./a.out":            "",
		"singularity run --nv --net --network bridge img.sif ./a.out":                                            "network",
		"apptainer exec --net --network host img.sif ./a.out":                                                    "",
		"enroot start img ./a.out":                                                                               "",
		"numactl -N 0 docker run img ./a.out":                                                                    "devices memlock network",
	} {
		var got []string
		for _, n := range walk(strings.Fields(words)).Missing() {
			got = append(got, names[n])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
}
