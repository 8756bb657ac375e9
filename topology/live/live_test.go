package live

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"fabrun/topology"
	"fabrun/topology/discover"
)

func tree(kv ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(kv); i += 2 {
		if target, ok := strings.CutPrefix(kv[i+1], "-> "); ok {
			m[kv[i]] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
			continue
		}
		m[kv[i]] = &fstest.MapFile{Data: []byte(kv[i+1])}
	}
	return m
}

func section(t *testing.T, o *overlay, name string) string {
	t.Helper()
	text, err := fs.ReadFile(o, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s: %v", name, err)
	}
	return string(text)
}

// elfWith is the smallest ELF file with the given constants in .rodata.
func elfWith(rodata string) string {
	var b bytes.Buffer
	names := "\x00.rodata\x00.shstrtab\x00"
	const head, sect = 64, 64
	data := uint64(head)
	strs := data + uint64(len(rodata))
	shoff := strs + uint64(len(names))
	h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: shoff, Ehsize: head, Shentsize: sect, Shnum: 3, Shstrndx: 2}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	put := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	put(h)
	b.WriteString(rodata + names)
	put(elf.Section64{})
	put(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: data, Size: uint64(len(rodata))})
	put(elf.Section64{Name: 9, Type: uint32(elf.SHT_STRTAB), Off: strs, Size: uint64(len(names))})
	return b.String()
}

// expressConfig is configuration space whose second capability is PCI Express.
func expressConfig(control uint16) string {
	b := make([]byte, 256)
	b[0x34] = 0x40
	b[0x40], b[0x41] = 0x01, 0x60 // power management
	b[0x60] = 0x10
	binary.LittleEndian.PutUint16(b[0x68:], control)
	return string(b)
}

// TestKernelLine: only the drivers that matter get into a snapshot.
func TestKernelLine(t *testing.T) {
	for record, want := range map[string]string{
		"6,339,5140900,-;mlx5_core 0000:3b:00.0: Port module event: module 0, Cable plugged\n SUBSYSTEM=pci\n": "at 5 mlx5_core 0000:3b:00.0: Port module event: module 0, Cable plugged",
		"4,340,86400000000,-;NVRM: Xid (PCI:0000:9c:00): 79, GPU has fallen off the bus.":                      "at 86400 NVRM: Xid (PCI:0000:9c:00): 79, GPU has fallen off the bus.",
		"6,341,5140900,-;audit: user=root password=x":                                                          "",
		"no record": "", "6,x,y,-;mlx5_core": "", ";mlx5_core": "",
	} {
		if got := kernelLine([]byte(record)); got != want {
			t.Errorf("%q: got %q, want %q", record, got, want)
		}
	}
}

func TestTimeSources(t *testing.T) {
	m := &machine{root: tree("etc/chrony.conf", "pool pool.ntp.org iburst\nserver 10.0.0.1 iburst\n# server 10.9.9.9\n", "etc/systemd/timesyncd.conf", "[Time]\nNTP=10.0.0.2 time.example.org\n",
		"etc/linuxptp/ptp4l.conf", "[global]\n[ens1]\n[gone]\n", "sys/class/net/ens1/mtu", "1500\n")}
	if got := strings.Join(m.timeSources(), ","); got != "10.0.0.1,10.0.0.2,dev ens1" {
		t.Errorf("got %s", got)
	}
}

func TestSections(t *testing.T) {
	for _, tc := range []struct {
		name    string
		files   fstest.MapFS
		env     []string
		section string
		want    string
	}{
		{
			name: "environment: allow-listed, sorted, the last one wins, no secrets",
			env: []string{
				"HOME=/root", "UCX_TLS=rc", "NCCL_DEBUG=INFO", "NCCL_DEBUG=WARN", "AWS_SECRET_ACCESS_KEY=x", "NCCL_AUTH_TOKEN=x", "PMIX_SERVER_URI4=x",
				"NCCL_IB_PKEY=0x8001", "NCCL_X=a\nb", "SLURM_JOB_NODELIST=n[1-4]", "SLURM_JWT=x", "CUDA_VISIBLE_DEVICES=", "NCCL_LONG=" + strings.Repeat("x", 40<<10),
			},
			section: discover.SectionEnv,
			want:    "CUDA_VISIBLE_DEVICES=\nNCCL_DEBUG=WARN\nNCCL_IB_PKEY=0x8001\nNCCL_X=\"a\\nb\"\nSLURM_JOB_NODELIST=n[1-4]\nUCX_TLS=rc\n",
		},
		{
			name: "NCCL_CONF_FILE replaces the user's file, and no path leaves the tree",
			files: tree("etc/nccl.conf", "NCCL_IB_TC=106\n", "root/.nccl.conf", "NCCL_DEBUG=INFO\n", "data/my.conf", "NCCL_ALGO=Ring\n",
				"opt/openmpi-5/bin/mpirun", "", "opt/openmpi-5/etc/prte-mca-params.conf", "x=1\n"),
			env: []string{"HOME=/root", "NCCL_CONF_FILE=/data/../data/my.conf", "UCX_CONFIG_DIR=../../..", "PATH=/opt/openmpi-5/bin:relative"}, section: discover.SectionConfig,
			want: "mca-prte/opt/openmpi-5/etc/prte-mca-params.conf nccl/data/my.conf nccl/etc/nccl.conf",
		},
		{
			name:    "rdma namespaces",
			files:   tree("sys/module/ib_core/parameters/netns_mode", "N\n"),
			section: discover.SectionRDMANetns, want: "exclusive\n",
		},
		{
			name:    "no ib_core, nothing said",
			section: discover.SectionRDMANetns, want: "",
		},
		{
			name: "modules with and without a version",
			files: tree("sys/module/mlx5_core/version", "24.10-0.7.0\n", "sys/module/rdma_cm/refcnt", "1\n", "sys/module/ext4/refcnt", "1\n",
				"sys/module/nvidia_peermem/version", "570.86.15\n"),
			section: discover.SectionModules, want: "mlx5_core 24.10-0.7.0\nnvidia_peermem 570.86.15\nrdma_cm -\n",
		},
		{
			name: "the HCA's own IOMMU group decides, not the command line",
			files: tree("sys/kernel/iommu_groups/0/type", "DMA\n", "sys/kernel/iommu_groups/1/type", "identity\n", "proc/cmdline", "quiet intel_iommu=on iommu=pt\n",
				"sys/class/infiniband/mlx5_0/device/iommu_group/type", "DMA-FQ\n"),
			section: discover.SectionIOMMU, want: "groups 2\npassthrough no\ncmdline intel_iommu=on iommu=pt\n",
		},
		{
			name: "open NVIDIA modules on a kernel that can DMA-BUF",
			files: tree("sys/module/nvidia/version", "570\n", "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\n",
				"proc/sys/kernel/osrelease", "5.15.0-100-generic\n"),
			section: discover.SectionPeerMem, want: "nvidia-peermem no\nopen-module yes\ndma-buf yes\ngdrcopy no\nkfd no\n",
		},
		{
			name: "open modules on an old number: back ports are possible, so unknown",
			files: tree("sys/module/nvidia/version", "570\n", "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\n",
				"proc/sys/kernel/osrelease", "4.18.0-553.el8.x86_64\n", "sys/module/nvidia_peermem/version", "570\n"),
			section: discover.SectionPeerMem, want: "nvidia-peermem yes /sys/module/nvidia_peermem\nopen-module yes\ngdrcopy no\nkfd no\n",
		},
		{
			name:    "AMD GPUs on the kernel's own RDMA stack",
			files:   tree("dev/kfd", "", "sys/module/amdgpu/version", "6\n", "proc/kallsyms", "0000000000000000 T dma_buf_move_notify\n0000000000000000 T pci_p2pdma_distance_many\n0000000000000000 T ib_register_device\n"),
			section: discover.SectionPeerMem, want: "nvidia-peermem no\ngdrcopy no\nkfd yes\namd-peer no\ndma-buf yes\n",
		},
		{
			name:    "AMD GPUs on OFED's",
			files:   tree("dev/kfd", "", "proc/kallsyms", "0000000000000000 T dma_buf_move_notify\n0000000000000000 T ib_register_peer_memory_client\t[ib_core]\n"),
			section: discover.SectionPeerMem, want: "gdrcopy no\nkfd yes\namd-peer yes\ndma-buf no\n",
		},
		{
			name:    "AMD GPUs, and symbols that cannot be read",
			files:   tree("dev/kfd", "", "sys/kernel/mm/memory_peers/amdkfd/version", "1.0\n"),
			section: discover.SectionPeerMem, want: "gdrcopy no\nkfd yes\namd-peer yes\n",
		},
		{
			name: "counters are not read when not asked for", files: tree("sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "1\n"),
			section: discover.SectionCounters, want: "",
		},
		{
			name: "libraries: soname links, wheels, plugins, HPC-X, OFED",
			files: tree(
				"usr/lib/x86_64-linux-gnu/libnccl.so.2", "-> libnccl.so.2.21.5", "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5", "x",
				"venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "not an ELF file",
				"venv/lib/python3.11/site-packages/nvidia_nccl_cu12-2.20.5.dist-info/METADATA", "",
				"venv/lib/python3.11/site-packages/torch/__init__.py", "", "venv/lib/python3.11/site-packages/torch-2.3.0+cu121.dist-info/METADATA", "",
				"opt/hpcx-v2.18/VERSION", "HPC-X v2.18\nucx-x\n", "opt/hpcx-v2.18/ucx/lib/libucp.so.0", "", "opt/hpcx-v2.18/hcoll/lib/libhcoll.so.1", "", "opt/mellanox/hcoll/lib/libhcoll.so.1", "", "opt/hpcx-v2.18/ucx/lib/pkgconfig/ucx.pc", "Name: ucx\nVersion: 1.16.0\n",
				"usr/local/gib/lib64/libnccl-net.so", "",
				"usr/bin/ofed_info", "#!/bin/bash\nif [ \"$1\" = -s ]; then echo MLNX_OFED_LINUX-23.10-1.1.9.0:\nfi\n",
				"usr/local/cuda/version.json", `{"cuda" : {"name" : "CUDA SDK","version" : "12.4.1"}}`,
				"usr/lib64/slurm/libslurmfull-23.11.4.so", "", "usr/bin/srun", "",
			),
			env: []string{"PATH=/venv/bin:/usr/bin", "VIRTUAL_ENV=/venv"}, section: discover.SectionSoftware,
			want: `cuda	12.4.1	usr/local/cuda	-	-
hcoll	-	opt/mellanox/hcoll/lib/libhcoll.so.1	-	-
hcoll	-	opt/hpcx-v2.18/hcoll/lib/libhcoll.so.1	-	-
hpcx	2.18	opt/hpcx-v2.18	-	-
nccl	2.21.5	usr/lib/x86_64-linux-gnu/libnccl.so.2	-	-
nccl	2.20.5	venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2	Python environment	-
nccl-plugin	-	usr/local/gib/lib64/libnccl-net.so	gIB	-
ofed	MLNX_OFED_LINUX-23.10-1.1.9.0	usr/bin/ofed_info	-	-
slurm	23.11.4	usr/bin/srun	-	-
torch	2.3.0+cu121	venv/lib/python3.11/site-packages/torch	-	-
ucx	1.16.0	opt/hpcx-v2.18/ucx/lib/libucp.so.0	HPC-X	-
verbs	-	-	absent	-
`,
		},
		{
			name: "MPI outside PATH, versions from the libraries' constants",
			files: tree(
				"usr/mpi/gcc/openmpi-4.1.7a1/bin/mpirun", "-> orterun", "usr/mpi/gcc/openmpi-4.1.7a1/bin/orterun", "",
				"usr/mpi/gcc/openmpi-4.1.7a1/lib64/libmpi.so.40", elfWith("4.f.\x00ident\x004.1.7\x00"), "usr/mpi/gcc/openmpi-4.1.7a1/lib64/openmpi/mca_pml_ucx.so", "",
				"opt/openmpi/bin/mpirun", "-> prterun", "opt/openmpi/bin/prterun", "", "opt/openmpi/lib/libmpi.so.40", elfWith("\x005.0.0rc12\x00"), "opt/openmpi/lib/openmpi/mca_pml_cm.so", "",
				"opt/mpich-4/bin/mpiexec", "-> mpiexec.hydra", "opt/mpich-4/bin/mpiexec.hydra", "", "opt/mpich-4/lib/libmpi.so.12", elfWith("MPICH Version:\x004.2.1\x00"),
				"opt/intel/oneapi/mpi/2021.10.0/bin/mpiexec.hydra", "", "opt/intel/oneapi/mpi/2021.10.0/lib/release/libmpi.so.12", elfWith("x\x00Intel(R) MPI Library 2021.10 for Linux* OS\n\x00"),
			),
			section: discover.SectionSoftware,
			want: `intelmpi	2021.10	opt/intel/oneapi/mpi/2021.10.0/bin/mpiexec.hydra	-	-
mpich	4.2.1	opt/mpich-4/bin/mpiexec	-	-
openmpi	4.1.7	usr/mpi/gcc/openmpi-4.1.7a1/bin/mpirun	UCX component present	-
openmpi	5.0.0rc12	opt/openmpi/bin/mpirun	UCX component absent	-
verbs	-	-	absent	-
`,
		},
		{
			name: "NCCL in a plain file says its version in a constant",
			files: tree("opt/nccl/lib/libnccl.so.2", elfWith("xCCL version\x00NCCL version 2.19.3+cuda12.3\x00"), "opt/ucx/lib/libucp.so.0", elfWith("UCX\x00A1.15.0\x00"),
				"opt/amazon/efa/lib64/libfabric.so.1", elfWith("127.0.0.1\x001.22.0\x00")),
			section: discover.SectionSoftware,
			want:    "libfabric\t1.22.0\topt/amazon/efa/lib64/libfabric.so.1\t-\t-\nnccl\t2.19.3\topt/nccl/lib/libnccl.so.2\t-\t-\nucx\t1.15.0\topt/ucx/lib/libucp.so.0\t-\t-\nverbs\t-\t-\tabsent\t-\n",
		},
		{
			name: "governors are counted",
			files: tree("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n", "sys/devices/system/cpu/cpufreq/policy0/scaling_driver", "acpi-cpufreq\n",
				"sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "performance\n", "sys/devices/system/cpu/cpufreq/policy2/scaling_governor", "performance\n"),
			section: discover.SectionCPUFreq, want: "driver acpi-cpufreq\ngovernor performance 2\ngovernor powersave 1\n",
		},
		{
			name: "interrupts of an HCA: the CPUs that serve them",
			files: tree("sys/class/infiniband/mlx5_0/device", "-> ../../../bus/pci/devices/0000:3b:00.0", "sys/bus/pci/devices/0000:3b:00.0/msi_irqs/40", "msix\n",
				"sys/bus/pci/devices/0000:3b:00.0/msi_irqs/41", "msix\n", "sys/bus/pci/devices/0000:3b:00.0/msi_irqs/42", "msix\n",
				"proc/irq/40/effective_affinity_list", "3\n", "proc/irq/41/effective_affinity_list", "4-5\n", "proc/irq/42/smp_affinity_list", "9\n"),
			section: discover.SectionIRQs, want: "0000:3b:00.0 3 3-5,9\n",
		},
		{
			name: "device control, read by root",
			files: tree("sys/class/infiniband/mlx5_0/device", "-> ../../../bus/pci/devices/0000:3b:00.0",
				"sys/bus/pci/devices/0000:3b:00.0/config", expressConfig(0x2930)),
			section: discover.SectionPCIe, want: "0000:3b:00.0 relaxed-ordering on max-payload 256 max-read-request 512\n",
		},
		{
			name: "device control, read by others",
			files: tree("sys/class/infiniband/mlx5_0/device", "-> ../../../bus/pci/devices/0000:3b:00.0",
				"sys/bus/pci/devices/0000:3b:00.0/config", expressConfig(0x2930)[:64]),
			section: discover.SectionPCIe, want: "",
		},
		{
			name:    "the way here, without the other end",
			env:     []string{"SSH_CONNECTION=192.0.2.1 50000 10.0.0.5 22"},
			section: discover.SectionSession, want: "ssh 10.0.0.5\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := tc.files
			if files == nil {
				files = fstest.MapFS{}
			}
			o := newOverlay(context.Background(), files, t.TempDir(), Options{Env: tc.env, Tuning: true})
			got := ""
			if tc.section == discover.SectionConfig {
				var paths []string
				err := fs.WalkDir(o, tc.section, func(p string, d fs.DirEntry, err error) error {
					if err == nil && !d.IsDir() {
						paths = append(paths, strings.TrimPrefix(p, tc.section+"/"))
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				got = strings.Join(paths, " ")
			} else {
				got = section(t, o, tc.section)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.section, diff)
			}
		})
	}
}

// What openMPIUCX may say of a library that cannot be read is nothing.
func TestOpenMPIWithoutUCX(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip("no ELF file to read: ", err)
	}
	files := tree("opt/ompi/lib/openmpi/mca_pml_ob1.so", "", "opt/ompi/lib/libmpi.so.40", string(self))
	m := &machine{root: files}
	if got := m.openMPIUCX("opt/ompi/lib/libmpi.so.40", nil); got != "UCX component absent" {
		t.Errorf("openMPIUCX = %q, want absent: plugins are there, UCX's is not, and the library does not need UCX", got)
	}
}

func TestOverlay(t *testing.T) {
	files := tree("etc/hostname", "n1\n", "sys/class/net/eth0/device/vendor", "x", "etc/nccl.conf", "A=1\n", "proc/self/status", "Cpus_allowed_list:\t0-3,8\n")
	o := newOverlay(context.Background(), files, t.TempDir(), Options{Env: []string{"UCX_TLS=rc"}})
	if got := section(t, o, "etc/hostname"); got != "n1\n" {
		t.Errorf("the tree below does not show through: %q", got)
	}
	if got := section(t, o, discover.SectionAffinity); got != "0-3,8\n" {
		t.Errorf("affinity = %q", got)
	}
	if _, err := fs.Stat(o, "fabrun/nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an unknown section: %v, want not exist", err)
	}
	if st, err := fs.Stat(o, "fabrun"); err != nil || !st.IsDir() {
		t.Errorf("fabrun: %v %v, want a directory", st, err)
	}
	if st, err := fs.Lstat(o, discover.SectionEnv); err != nil || st.Size() != int64(len("UCX_TLS=rc\n")) {
		t.Errorf("%s: %v %v", discover.SectionEnv, st, err)
	}
	names := map[string]bool{}
	if err := fs.WalkDir(o, "fabrun", func(p string, d fs.DirEntry, err error) error {
		names[p] = d.IsDir()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for p, dir := range map[string]bool{"fabrun/dcb": true, "fabrun/dcb/eth0": false, "fabrun/config/nccl/etc/nccl.conf": false, "fabrun/limits": false} {
		if got, ok := names[p]; !ok || got != dir {
			t.Errorf("%s: listed %v, directory %v; want directory %v", p, ok, got, dir)
		}
	}
}

// A section is taken once: two reads of one tree are one machine.
func TestSectionIsTakenOnce(t *testing.T) {
	files := tree("sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "1\n")
	o := newOverlay(context.Background(), files, t.TempDir(), Options{Counters: true})
	first := section(t, o, discover.SectionCounters)
	files["sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"] = &fstest.MapFile{Data: []byte("2\n")}
	if second := section(t, o, discover.SectionCounters); first != second || !strings.Contains(first, "mlx5_0:1 symbol_error 1\n") {
		t.Errorf("first %q, then %q", first, second)
	}
}

// The live machine of whoever runs the tests: every section can be taken or
// says why not.
func TestThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the sections are Linux's")
	}
	o := FS(context.Background(), Options{Env: os.Environ(), Counters: true, ACS: true}).(*overlay)
	for p := range o.sections {
		if _, err := fs.ReadFile(o, p); err != nil && !errors.Is(err, fs.ErrNotExist) && discover.Reason(err) == "" {
			t.Errorf("%s: %v", p, err)
		}
	}
	if got := section(t, o, discover.SectionLimits); !strings.Contains(got, "memlock ") || !strings.Contains(got, "nofile ") {
		t.Errorf("limits: %q", got)
	}
	if got := section(t, o, discover.SectionAddrs); !strings.Contains(got, "127.0.0.1/8") {
		t.Errorf("addresses without loopback: %q", got)
	}
	// A netdev without DCB says so; that is a fact, not a failure.
	m := &machine{root: os.DirFS("/")}
	if _, err := m.dcbOf("lo"); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("DCB of lo: %v, want EOPNOTSUPP", err)
	}
	if _, err := m.dcbOf("no-such-netdev0"); err == nil {
		t.Error("DCB of a netdev that does not exist: no error")
	}
}

func TestLocksFreely(t *testing.T) {
	const first = "         0          0 4294967295\n"
	status := func(uid, eff, amb string) string {
		return "Name:\tx\nUid:\t" + uid + "\t" + uid + "\t" + uid + "\t" + uid + "\nCapEff:\t" + eff + "\nCapAmb:\t" + amb + "\n"
	}
	for _, c := range []struct {
		name, status, uidMap string
		can, known           bool
	}{
		{"root", status("0", "000001ffffffffff", "0000000000000000"), first, true, true},
		{"root of a container without it", status("0", "00000000a80425fb", "0000000000000000"), first, false, true},
		{"root of a container with it", status("0", "00000000a80465fb", "0000000000000000"), first, true, true},
		{"root of another user namespace", status("0", "000001ffffffffff", "0000000000000000"), "0 1000 1\n1 100000 65536\n", false, true},
		{"a user", status("1000", "0000000000000000", "0000000000000000"), first, false, true},
		{"a user's program with it, which an exec loses", status("1000", "0000000000004000", "0000000000000000"), first, false, true},
		{"a user with it as ambient", status("1000", "0000000000004000", "0000000000004000"), first, true, true},
		{"no capabilities told", "Name:\tx\nUid:\t0\t0\t0\t0\n", first, false, false},
		{"no map", status("0", "000001ffffffffff", "0000000000000000"), "", false, false},
		{"garbage", "CapEff:\tno\nCapEff:\nUid:\t\n", "x", false, false},
	} {
		if can, known := locksFreely(c.status, c.uidMap); can != c.can || known != c.known {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, can, known, c.can, c.known)
		}
	}
}

func TestSoftNofile(t *testing.T) {
	text := "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 524288               files\n"
	if got := softNofile(text); got != "1024" {
		t.Errorf("softNofile = %q", got)
	}
	if got := softNofile("garbage"); got != "" {
		t.Errorf("softNofile(garbage) = %q", got)
	}
}

func TestACSRedirect(t *testing.T) {
	config := make([]byte, 4096)
	binary.LittleEndian.PutUint32(config[0x100:], 0x0001|1<<16|0x148<<20) // AER, next at 0x148
	binary.LittleEndian.PutUint32(config[0x148:], 0x000d|1<<16)           // ACS, last
	if acsRedirect(config) {
		t.Error("ACS with no control bit set redirects nothing")
	}
	binary.LittleEndian.PutUint16(config[0x148+6:], 1<<2)
	if !acsRedirect(config) {
		t.Error("request redirect set, not seen")
	}
	binary.LittleEndian.PutUint32(config[0x100:], 0x0001|1<<16|0x100<<20) // a list that runs in a circle
	if acsRedirect(config) || acsRedirect(config[:64]) || acsRedirect(nil) {
		t.Error("a broken or hidden capability list is no ACS")
	}
}

func TestHelper(t *testing.T) {
	dir := t.TempDir()
	self := filepath.Join(dir, "fabrun")
	helper := filepath.Join(dir, "fabrun-nvml")
	if got := Helper(self); got != "" {
		t.Errorf("no helper there: %q", got)
	}
	write := func(script string) {
		t.Helper()
		if err := os.WriteFile(helper, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("printf -- '-- fabrun/nvml --\\ndriver 1\\n'\n")
	if got := Helper(self); got != helper {
		t.Errorf("Helper = %q, want %q", got, helper)
	}
	for name, tc := range map[string]struct{ script, want, err string }{
		"facts":      {"printf -- '-- fabrun/nvml --\\ndriver 1\\n'\n", "driver 1\n", ""},
		"no driver":  {"echo 'fabrun/nvml ! no NVIDIA driver library'\n", "", "no NVIDIA driver library"},
		"killed":     {"kill -9 $$\n", "", "fabrun-nvml ended with signal: killed"},
		"other text": {"echo hello\n", "", "fabrun-nvml printed no section fabrun/nvml"},
		"too much":   {"head -c 2000000 /dev/zero\n", "", "fabrun-nvml printed more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			write(tc.script)
			got, err := nvml(context.Background(), helper)
			if string(got) != tc.want || (err == nil) != (tc.err == "") || err != nil && discover.Reason(err) != tc.err {
				t.Errorf("nvml = %q, %v; want %q, %q", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestSecondOpinions(t *testing.T) {
	helper := filepath.Join(t.TempDir(), "fabrun-nvml")
	script := "#!/bin/sh\ntest \"$*\" = opinions && printf -- '-- fabrun/opinions --\\nrdmamap\\tens1\\thca\\tmlx5_0\\n'\n"
	if err := os.WriteFile(helper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	o := FS(context.Background(), Options{Helper: helper, Opinions: true})
	got, err := fs.ReadFile(o, discover.SectionOpinions)
	if want := "rdmamap\tens1\thca\tmlx5_0\n"; err != nil || string(got) != want {
		t.Errorf("opinions = %q, %v; want %q", got, err, want)
	}
	if _, err := fs.ReadFile(FS(context.Background(), Options{Helper: helper}), discover.SectionOpinions); err == nil {
		t.Error("opinions that nobody asked for")
	}
}

func TestDisagreements(t *testing.T) {
	h := &topology.Host{
		PCI:  []topology.PCIDevice{{Address: "0000:3b:00.0", NUMA: new(0), Driver: "mlx5_core"}, {Address: "0000:5e:00.0"}},
		HCAs: []topology.HCA{{Name: "mlx5_0", CharDevice: "uverbs0", Ports: []topology.Port{{Netdev: "ens1"}}}},
		Opinions: []topology.Opinion{
			{Source: "ghw", Subject: "0000:3b:00.0", Attribute: "numa", Value: "1"},
			{Source: "ghw", Subject: "0000:5e:00.0", Attribute: "numa", Value: "0"}, // sysfs says unknown: no disagreement
			{Source: "ghw", Subject: "0000:3b:00.0", Attribute: "driver", Value: "mlx5_core"},
			{Source: "ghw", Subject: "0000:3b:00.0", Attribute: "name", Value: "x"},
			{Source: "rdmamap", Subject: "mlx5_0", Attribute: "chardevs", Value: "issm0,rdma_cm,umad0,uverbs0"},
			{Source: "rdmamap", Subject: "ens1", Attribute: "hca", Value: "mlx5_1"},
		},
	}
	var got []string
	for _, f := range Disagreements(h) {
		got = append(got, f.Subject+": "+f.Seen+"; "+f.Wanted)
	}
	want := []string{"0000:3b:00.0: numa: sysfs says 0; the same from ghw, which says 1", "ens1: hca: sysfs says mlx5_0; the same from rdmamap, which says mlx5_1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Disagreements: -want +got\n%s", diff)
	}
}

func BenchmarkFastPath(b *testing.B) {
	for b.Loop() {
		o := FS(context.Background(), Options{Env: os.Environ()}).(*overlay)
		for p := range o.sections {
			_, err := fs.ReadFile(o, p)
			_ = err
		}
	}
}
