package live

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"fabrun/topology"
)

// libDirs are where libraries are looked for, besides LD_LIBRARY_PATH and the
// prefixes of launchers.
var libDirs = []string{
	"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib/powerpc64le-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib", "usr/local/lib64",
	"usr/local/cuda/lib64", "usr/local/cuda/targets/x86_64-linux/lib", "opt/nccl/lib", "opt/rocm/lib", "opt/amd-anp/build", "opt/ucx/lib", "opt/amazon/efa/lib", "opt/amazon/efa/lib64",
	"opt/amazon/ofi-nccl/lib", "opt/amazon/ofi-nccl/lib64", "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", "opt/aws-ofi-nccl/lib", "usr/local/gib/lib64",
	"opt/cray/libfabric/default/lib64", "opt/mellanox/sharp/lib", "usr/local/nvshmem/lib",
}

// binDirs are where launchers lie outside PATH: OFED's and HPC-X's Open MPI,
// the distributions' module trees, EFA's, Intel's. A star is one path element.
var binDirs = []string{
	"usr/mpi/gcc/*/bin", "usr/lib64/openmpi/bin", "usr/lib64/mpich/bin", "usr/lib64/mvapich2/bin", "usr/lib64/mpi/gcc/*/bin", "usr/local/mpi/bin",
	"usr/local/openmpi/bin", "usr/local/ompi/bin", "opt/openmpi*/bin", "opt/ompi*/bin", "opt/mpich*/bin", "opt/mvapich*/bin", "opt/mpi/*/bin",
	"opt/amazon/openmpi*/bin", "opt/hpcx*/ompi/bin", "opt/hpcx*/hpcx*/ompi/bin", "opt/mellanox/hpcx*/ompi/bin", "opt/nvidia/hpcx*/ompi/bin", "opt/nvidia/hpc_sdk/Linux_x86_64/*/comm_libs/mpi/bin", "opt/intel/oneapi/mpi/*/bin",
	"usr/local/bin", "usr/bin",
}

// maxGlob bounds how many directories one pattern may name.
const maxGlob = 32

// glob expands a pattern of libDirs or binDirs in the tree.
func (m *machine) glob(pattern string) []string {
	if !strings.Contains(pattern, "*") {
		return []string{pattern}
	}
	dirs := []string{""}
	for part := range strings.SplitSeq(pattern, "/") {
		var next []string
		for _, d := range dirs {
			if !strings.Contains(part, "*") {
				next = append(next, path.Join(d, part))
				continue
			}
			for _, n := range m.names(orDot(d)) {
				if ok, err := path.Match(part, n); err == nil && ok {
					next = append(next, path.Join(d, n))
				}
			}
		}
		dirs = next[:min(len(next), maxGlob)]
	}
	return dirs
}

func orDot(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}

// pathList reads a variable like PATH into tree paths; relative entries are
// left out, since what they mean depends on where the job runs.
func (m *machine) pathList(name string) []string {
	var out []string
	for dir := range strings.SplitSeq(m.getenv(name), ":") {
		if !strings.HasPrefix(dir, "/") {
			continue
		}
		if dir = strings.TrimPrefix(path.Clean(dir), "/"); fs.ValidPath(dir) && dir != "." && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// launcherDirs are the directories with launchers, PATH first, as the shell
// would find them; the same directory under two names counts once.
func (m *machine) launcherDirs() []string {
	if m.dirs != nil {
		return m.dirs
	}
	dirs := m.pathList("PATH")
	for _, v := range []string{"HPCX_MPI_DIR", "MPI_HOME", "I_MPI_ROOT", "OPAL_PREFIX", "MPI_ROOT"} {
		if d := strings.Trim(m.getenv(v), "/"); d != "" && fs.ValidPath(d) {
			dirs = append(dirs, d+"/bin")
		}
	}
	for _, p := range binDirs {
		dirs = append(dirs, m.glob(p)...)
	}
	seen := map[string]bool{}
	m.dirs = []string{}
	for _, d := range dirs {
		real := m.resolve(d)
		if seen[real] || !m.exists(d) {
			continue
		}
		seen[real] = true
		m.dirs = append(m.dirs, d)
	}
	return m.dirs
}

// maxLinks is as many links as the kernel follows.
const maxLinks = 40

// resolve follows the links at the end of name, staying in the tree. It does
// not look at links in the directories above, which version numbers do not
// hide in.
func (m *machine) resolve(name string) string {
	for range maxLinks {
		target, err := fs.ReadLink(m.root, name)
		if err != nil {
			return name
		}
		if strings.HasPrefix(target, "/") {
			name = strings.TrimPrefix(path.Clean(target), "/")
		} else {
			name = path.Join(path.Dir(name), target)
		}
		if !fs.ValidPath(name) {
			return name
		}
	}
	return name
}

// library is one kind of library that is looked for by its soname.
type library struct {
	kind    string
	soname  string
	version func(m *machine, file string) string
}

var libraries = []library{
	{"verbs", "libibverbs.so.1", sonameVersion},
	{"nccl", "libnccl.so.2", ncclVersion},
	{"rccl", "librccl.so.1", ncclVersion},
	{"ucx", "libucp.so.0", func(m *machine, f string) string { return m.packaged(f, "ucx.pc", "libucp.so.0") }},
	{"libfabric", "libfabric.so.1", func(m *machine, f string) string { return m.packaged(f, "libfabric.pc", "") }},
	{"nvshmem", "libnvshmem_host.so.3", sonameVersion},
	{"nvshmem", "libnvshmem_host.so.2", sonameVersion},
	{"cuda", "libcudart.so.13", sonameVersion},
	{"cuda", "libcudart.so.12", sonameVersion},
	{"cuda", "libcudart.so.11.0", sonameVersion},
	{"nccl-plugin", "libnccl-net.so", nil},
	{"nccl-plugin", "libnccl-net-ofi.so", nil},
	{"nccl-plugin", "libnccl-net-aws-ofi.so", nil},
	{"nccl-plugin", "libnccl-net_internal.so", nil},
	{"nccl-plugin", "libnccl-net-spcx.so", nil},
	{"nccl-plugin", "librccl-net.so", nil},
	{"nccl-plugin", "librccl-anp.so", nil},
}

// lazy compiles an expression when it is first used: a program that looks for
// no library does not pay for it at start.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

var (
	soVersion     = lazy(`\.so\.(\d+\.\d+\.\d+\S*)$`)
	pcVersion     = lazy(`(?m)^Version:\s*(\d\S*)`)
	ncclBanner    = lazy(`^NCCL version (\d+\.\d+\.\d+)`)
	releaseNumber = lazy(`^\d{1,4}\.\d{1,3}\.\d{1,3}(?:(?:rc|a|b)\d{1,3})?$`)
	intelVersion  = lazy(`Intel\(R\) MPI Library (\d+(?:\.\d+)*)`)
	mvapichPlain  = lazy(`MVAPICH2?(?:-\w+)? ?(?:Version:?\s*)?(\d+\.\d+(?:\.\d+)?\S*?)[\x00\s]`)
	ofedVersion   = lazy(`((?:MLNX_OFED_LINUX|DOCA-OFED|OFED-internal|MLNX_EN|DOCA_OFED)-\d[\w.-]*\d)`)
	hpcxVersion   = lazy(`(?i)hpc-?x\s+v?(\d+(?:\.\d+)*)`)
	cudaVersion   = lazy(`"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"`)
	slurmLibrary  = lazy(`^libslurmfull-(\d+\.\d+\.\d+\S*)\.so$`)
	torchDistInfo = lazy(`^torch-(\d[^-]*)\.dist-info$`)
)

// sonameVersion takes the version from the name of the file behind the links:
// libnccl.so.2 -> libnccl.so.2.21.5.
func sonameVersion(m *machine, file string) string {
	if g := soVersion().FindStringSubmatch(m.resolve(file)); g != nil {
		return g[1]
	}
	return ""
}

func ncclVersion(m *machine, file string) string {
	if v := sonameVersion(m, file); v != "" {
		return strings.TrimRight(v, "+")
	}
	// "NCCL version 2.21.5+cuda12.4", and RCCL's "RCCL version 2.20.5+hip6.2 …".
	text := m.readOnlyData(file)
	for {
		i := bytes.Index(text, []byte("CCL version "))
		if i < 1 {
			return ""
		}
		if v := firstMatch(append([]byte("N"), text[i:min(i+40, len(text))]...), ncclBanner); v != "" {
			return v
		}
		text = text[i+1:]
	}
}

// packaged takes the version from a pkg-config file beside the library, else
// from the library's own text.
func (m *machine) packaged(file, pc, soname string) string {
	for _, dir := range []string{path.Dir(file), path.Dir(m.resolve(file))} {
		if g := pcVersion().FindStringSubmatch(m.read(path.Join(dir, "pkgconfig", pc))); g != nil {
			return g[1]
		}
	}
	return releaseIn(m.readOnlyData(file), soname == "libucp.so.0")
}

// releaseIn finds the first constant that is a release number and nothing else
// ("4.1.4", "v5.0.0rc12"). loose also takes one that ends another constant: the
// linker shares tails, and UCX's number is often found in such a place.
func releaseIn(text []byte, loose bool) string {
	for end := 0; end < len(text); end++ {
		skip := bytes.IndexByte(text[end:], 0)
		if skip < 0 {
			return ""
		}
		end += skip
		if end < 5 || text[end-1] < '0' || text[end-1] > '9' {
			continue
		}
		start := end
		for start > 0 && end-start < 20 && bytes.IndexByte([]byte("0123456789.rcab"), text[start-1]) >= 0 {
			start--
		}
		word := string(text[start:end])
		if whole := start > 0 && (text[start-1] == 0 || text[start-1] == 'v' && start > 1 && text[start-2] == 0); !whole {
			if !loose || strings.Count(word, ".") != 2 || !strings.HasPrefix(word, "1.") {
				continue
			}
		}
		if releaseNumber().MatchString(word) {
			return word
		}
	}
	return ""
}

func firstMatch(text []byte, re func() *regexp.Regexp) string {
	if g := re().FindSubmatch(text); g != nil {
		return string(g[1])
	}
	return ""
}

// software lists the libraries and launchers found, by kind, in the order in
// which the loader and the shell would find them.
func (m *machine) software() ([]byte, error) {
	var found []topology.Software
	seen := map[string]bool{}
	add := func(s topology.Software) {
		key := s.Kind + "\x00" + m.resolve(s.Path)
		if !seen[key] {
			seen[key] = true
			found = append(found, s)
		}
	}
	dirs := m.pathList("LD_LIBRARY_PATH")
	for _, d := range libDirs {
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	for _, v := range []string{"HPCX_UCX_DIR", "NCCL_HOME", "NVSHMEM_HOME"} {
		if d := strings.Trim(m.getenv(v), "/"); d != "" && fs.ValidPath(d) {
			dirs = append(dirs, d+"/lib")
		}
	}
	realDirs := map[string]bool{}
	for _, dir := range dirs {
		real := m.resolve(dir)
		if realDirs[real] || !m.exists(dir) {
			continue
		}
		realDirs[real] = true
		for _, lib := range libraries {
			file := dir + "/" + lib.soname
			if !m.exists(file) {
				continue
			}
			s := topology.Software{Kind: lib.kind, Path: file}
			if lib.version != nil {
				s.Version = lib.version(m, file)
			}
			if lib.kind == "nccl-plugin" && strings.Contains(dir, "/gib/") {
				s.Detail = "gIB"
			}
			add(s)
		}
	}
	m.pythonSoftware(add)
	m.launchers(add)
	m.packages(add)
	if !slices.ContainsFunc(found, func(s topology.Software) bool { return s.Kind == "verbs" }) {
		// Looked for and not there, which an older snapshot cannot say.
		found = append(found, topology.Software{Kind: "verbs", Detail: "absent"})
	}
	slices.SortStableFunc(found, func(a, b topology.Software) int { return strings.Compare(a.Kind, b.Kind) })
	var b strings.Builder
	for _, s := range found {
		if strings.Contains(path.Base(s.Path), ".so") {
			s.Hash = m.buildID(s.Path)
		}
		fields := []string{s.Kind, s.Version, s.Path, s.Detail, s.Hash}
		for i, f := range fields {
			if f = oneLine(f); f == "" {
				f = "-"
			}
			fields[i] = f
		}
		fmt.Fprintf(&b, "%s\n", strings.Join(fields, "\t"))
	}
	return []byte(b.String()), nil
}

// sitePackages are the package directories of the Python environments that a
// job started here would use: the active one, conda's, those of the python3 and
// torchrun in PATH, and the system's.
func (m *machine) sitePackages() []string {
	var prefixes []string
	add := func(p string) {
		if p = strings.Trim(path.Clean("/"+p), "/"); p != "" && fs.ValidPath(p) && !slices.Contains(prefixes, p) {
			prefixes = append(prefixes, p)
		}
	}
	for _, v := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if p := m.getenv(v); strings.HasPrefix(p, "/") {
			add(p)
		}
	}
	for _, dir := range m.pathList("PATH") {
		if m.exists(dir+"/torchrun") || m.exists(dir+"/python3") {
			add(path.Dir(dir))
		}
	}
	if home := m.getenv("HOME"); strings.HasPrefix(home, "/") {
		add(home + "/.local")
	}
	add("usr/local")
	add("usr")
	var out []string
	for _, p := range prefixes {
		for _, py := range m.names(p + "/lib") {
			if !strings.HasPrefix(py, "python3") {
				continue
			}
			for _, kind := range []string{"site-packages", "dist-packages"} {
				if dir := p + "/lib/" + py + "/" + kind; m.exists(dir) {
					out = append(out, dir)
				}
			}
		}
	}
	return out[:min(len(out), maxGlob)]
}

// pythonSoftware finds the NCCL, NVSHMEM and CUDA that PyTorch's wheels bring
// (nvidia-nccl-cu12 and its like put them under nvidia/), and PyTorch itself.
// The wheel's directory says the version.
func (m *machine) pythonSoftware(add func(topology.Software)) {
	for _, dir := range m.sitePackages() {
		hasNVIDIA, hasTorch := m.exists(dir+"/nvidia"), m.exists(dir+"/torch")
		if !hasNVIDIA && !hasTorch {
			continue
		}
		names := m.names(dir)
		// nvidia_nccl_cu12-2.21.5.dist-info
		wheel := func(prefix string) string {
			for _, n := range names {
				base, ok := strings.CutSuffix(n, ".dist-info")
				if name, version, cut := strings.Cut(base, "-"); ok && cut && strings.HasPrefix(strings.ToLower(name), prefix) {
					return version
				}
			}
			return ""
		}
		for _, lib := range []struct{ kind, dir, soname, wheel string }{
			{"nccl", "nvidia/nccl/lib", "libnccl.so.2", "nvidia_nccl"},
			{"nvshmem", "nvidia/nvshmem/lib", "libnvshmem_host.so.3", "nvidia_nvshmem"},
			{"cuda", "nvidia/cuda_runtime/lib", "libcudart.so.12", "nvidia_cuda_runtime"},
			{"rccl", "torch/lib", "librccl.so", ""},
		} {
			file := dir + "/" + lib.dir + "/" + lib.soname
			if !m.exists(file) {
				continue
			}
			s := topology.Software{Kind: lib.kind, Path: file, Detail: "Python environment"}
			if lib.wheel != "" {
				s.Version = wheel(lib.wheel)
			}
			if s.Version == "" && lib.kind != "cuda" {
				s.Version = ncclVersion(m, file)
			}
			add(s)
		}
		if hasTorch {
			s := topology.Software{Kind: "torch", Path: dir + "/torch"}
			for _, n := range names {
				if g := torchDistInfo().FindStringSubmatch(n); g != nil {
					s.Version = g[1]
				}
			}
			add(s)
		}
	}
}

// packages finds what is known by a file of its own: OFED, HPC-X, CUDA, Slurm.
func (m *machine) packages(add func(topology.Software)) {
	if text, err := readBounded(m.root, "usr/bin/ofed_info", 64<<10); err == nil {
		add(topology.Software{Kind: "ofed", Version: firstMatch(text, ofedVersion), Path: "usr/bin/ofed_info"})
	}
	// A tarball that is unpacked anywhere; OFED and DOCA put parts below opt/mellanox.
	hpcx := slices.Concat(m.glob("opt/hpcx*"), m.glob("opt/mellanox/hpcx*"), m.glob("opt/nvidia/hpcx*"))
	if d := strings.Trim(m.getenv("HPCX_DIR"), "/"); d != "" && fs.ValidPath(d) {
		hpcx = append([]string{d}, hpcx...)
	}
	hcoll := []string{"opt/mellanox/hcoll/lib/libhcoll.so.1"}
	for _, dir := range hpcx {
		hcoll = append(hcoll, dir+"/hcoll/lib/libhcoll.so.1")
		if text := m.read(dir + "/VERSION"); text != "" {
			add(topology.Software{Kind: "hpcx", Version: firstMatch([]byte(text), hpcxVersion), Path: dir})
		}
		for _, lib := range []string{dir + "/ucx/lib/libucp.so.0"} {
			if m.exists(lib) {
				add(topology.Software{Kind: "ucx", Version: m.packaged(lib, "ucx.pc", "libucp.so.0"), Path: lib, Detail: "HPC-X"})
			}
		}
		if lib := dir + "/nccl_rdma_sharp_plugin/lib/libnccl-net.so"; m.exists(lib) {
			add(topology.Software{Kind: "nccl-plugin", Path: lib})
		}
	}
	for _, lib := range hcoll {
		if m.exists(lib) {
			add(topology.Software{Kind: "hcoll", Path: lib})
		}
	}
	if text := m.read("usr/local/cuda/version.json"); text != "" {
		add(topology.Software{Kind: "cuda", Version: firstMatch([]byte(text), cudaVersion), Path: "usr/local/cuda"})
	}
	for _, tool := range []string{"srun", "ib_write_bw", "torchrun"} {
		for _, dir := range m.launcherDirs() {
			file := dir + "/" + tool
			if !m.exists(file) {
				continue
			}
			s := topology.Software{Path: file}
			switch tool {
			case "srun":
				s.Kind, s.Version = "slurm", m.slurmVersion()
			case "ib_write_bw":
				s.Kind = "perftest"
			default:
				s.Kind = tool
			}
			add(s)
			break
		}
	}
}

func (m *machine) slurmVersion() string {
	for _, dir := range []string{"usr/lib64/slurm", "usr/lib/x86_64-linux-gnu/slurm-wlm", "usr/lib/aarch64-linux-gnu/slurm-wlm", "usr/lib/slurm", "usr/local/lib/slurm", "opt/slurm/lib/slurm"} {
		names := m.names(dir)
		for _, n := range names {
			if g := slurmLibrary().FindStringSubmatch(n); g != nil {
				return g[1]
			}
		}
		if slices.Contains(names, "libslurmfull.so") {
			return releaseIn(m.readOnlyData(dir+"/libslurmfull.so"), false)
		}
	}
	return ""
}
