package live

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"fabrun/envgen/vars"
)

// limits is what setrlimit, the cgroup and /dev/shm allow this process.
func (m *machine) limits() ([]byte, error) {
	var b strings.Builder
	const rlimitMemlock = 8 // RLIMIT_MEMLOCK on every Linux but MIPS and SPARC; package syscall has no name for it
	var memlock, nofile syscall.Rlimit
	if err := syscall.Getrlimit(rlimitMemlock, &memlock); err == nil {
		fmt.Fprintf(&b, "memlock %s %s\n", limitText(memlock.Cur), limitText(memlock.Max))
	}
	if can, known := locksFreely(m.read("proc/self/status"), m.read("proc/self/uid_map")); known {
		fmt.Fprintf(&b, "ipc-lock %s\n", yesNo(can))
	}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &nofile); err == nil {
		// A Go program raises its own soft limit at start and gives children the
		// old one back; the parent's is the one a job would get.
		soft := limitText(nofile.Cur)
		if s := softNofile(m.read(fmt.Sprintf("proc/%d/limits", os.Getppid()))); s != "" {
			soft = s
		}
		fmt.Fprintf(&b, "nofile %s %s\n", soft, limitText(nofile.Max))
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(m.osPath("dev/shm"), &st); err == nil && st.Bsize > 0 {
		size, free := st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
		if size <= math.MaxInt64 {
			fmt.Fprintf(&b, "shm %d %d\n", size, free)
		}
	}
	if s := m.pidsMax(); s != "" {
		fmt.Fprintf(&b, "pids-max %s\n", s)
	}
	return []byte(b.String()), nil
}

// locksFreely says whether what this process starts holds CAP_IPC_LOCK as the
// kernel asks for it when memory is pinned (capable() in ib_umem_get,
// drivers/infiniband/core/umem.c): in the first user namespace, where alone
// uid_map covers every number. An exec keeps root's capabilities, and of others
// the ambient ones.
func locksFreely(status, uidMap string) (can, known bool) {
	const ipcLock = 1 << 14
	caps := map[string]uint64{}
	root := false
	for line := range strings.Lines(status) {
		name, rest, _ := strings.Cut(line, ":")
		w := strings.Fields(rest)
		switch {
		case len(w) == 0:
		case strings.HasPrefix(name, "Cap"):
			if v, err := strconv.ParseUint(w[0], 16, 64); err == nil {
				caps[name] = v
			}
		case name == "Uid" && len(w) > 1:
			root = w[1] == "0"
		}
	}
	effective, ok := caps["CapEff"]
	first := slices.Equal(strings.Fields(uidMap), []string{"0", "0", "4294967295"})
	return first && effective&ipcLock != 0 && (root || caps["CapAmb"]&ipcLock != 0), ok && uidMap != ""
}

func limitText(v uint64) string {
	if v == math.MaxUint64 {
		return "unlimited"
	}
	return strconv.FormatUint(v, 10)
}

// softNofile takes the soft limit of open files out of a /proc/<pid>/limits.
func softNofile(text string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if w := strings.Fields(rest); len(w) > 0 {
				if _, err := strconv.ParseUint(w[0], 10, 64); err == nil || w[0] == "unlimited" {
					return w[0]
				}
			}
		}
	}
	return ""
}

// pidsMax is the cgroup's limit of processes, of version 2 or 1.
func (m *machine) pidsMax() string {
	for line := range strings.Lines(m.read("proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || strings.Contains(parts[2], "..") {
			continue
		}
		dir := "sys/fs/cgroup"
		switch {
		case parts[0] == "0" && parts[1] == "":
		case slices.Contains(strings.Split(parts[1], ","), "pids"):
			dir += "/pids"
		default:
			continue
		}
		for _, p := range []string{dir + parts[2] + "/pids.max", dir + "/pids.max"} {
			if s := m.read(strings.ReplaceAll(p, "//", "/")); s != "" {
				return s
			}
		}
	}
	return ""
}

// affinity is the list of CPUs this process may use.
func (m *machine) affinity() ([]byte, error) {
	for line := range strings.Lines(m.read("proc/self/status")) {
		if s, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return []byte(strings.TrimSpace(s) + "\n"), nil
		}
	}
	return nil, nil
}

// maxEnvValue bounds one value: more than a long list of library directories.
const maxEnvValue = 32 << 10

func (m *machine) env() ([]byte, error) {
	last := map[string]string{}
	var names []string
	for _, kv := range m.opts.Env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || strings.ContainsAny(name, " \t\r\n") || !vars.Carried(name) || len(value) > maxEnvValue {
			continue
		}
		if _, seen := last[name]; !seen {
			names = append(names, name)
		}
		last[name] = vars.Redact(value)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		value := last[name]
		if strings.HasPrefix(value, `"`) || strings.TrimRight(value, " \t") != value || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
			value = strconv.Quote(value)
		}
		fmt.Fprintf(&b, "%s=%s\n", name, value)
	}
	return []byte(b.String()), nil
}

type configFile struct{ kind, path string }

// configFiles are the files that NCCL, RCCL, UCX, Open MPI, PRRTE and PMIx read by
// themselves and that are there, by kind. NCCL reads $NCCL_CONF_FILE in place
// of ~/.nccl.conf, and /etc/nccl.conf always (NCCL src/misc/param.cc); UCX
// reads its prefix's, $HOME, $UCX_CONFIG_DIR and the working directory (UCX
// src/ucs/config/parser.c).
func (m *machine) configFiles() []configFile {
	home := m.getenv("HOME")
	in := func(dir, name string) string {
		if dir == "" {
			return ""
		}
		return strings.TrimRight(dir, "/") + "/" + name
	}
	ncclUser := m.getenv("NCCL_CONF_FILE")
	if ncclUser == "" {
		ncclUser = in(home, ".nccl.conf")
	}
	candidates := []configFile{
		{"nccl", "/etc/nccl.conf"},
		{"nccl", ncclUser},
		{"rccl", "/etc/rccl.conf"},
		{"rccl", in(home, ".rccl.conf")},
		{"ucx", "/etc/ucx/ucx.conf"},
		{"ucx", "/usr/local/etc/ucx/ucx.conf"},
		{"ucx", "/opt/ucx/etc/ucx/ucx.conf"},
		{"ucx", in(home, "ucx.conf")},
		{"ucx", in(m.getenv("UCX_CONFIG_DIR"), "ucx.conf")},
		{"ucx", in(m.getenv("PWD"), "ucx.conf")},
		{"mca-openmpi", "/etc/openmpi/openmpi-mca-params.conf"},
		{"mca-openmpi", "/usr/local/etc/openmpi-mca-params.conf"},
		{"mca-openmpi", in(home, ".openmpi/mca-params.conf")},
		{"mca-prte", in(home, ".prte/mca-params.conf")},
		{"mca-prte", "/usr/local/etc/prte-mca-params.conf"},
		{"mca-pmix", in(home, ".pmix/mca-params.conf")},
		{"mca-pmix", "/usr/local/etc/pmix-mca-params.conf"},
		{"mca-pmix", "/etc/pmix-mca-params.conf"},
	}
	for _, dir := range m.launcherDirs() {
		if prefix, ok := strings.CutSuffix("/"+dir, "/bin"); ok && prefix != "" && prefix != "/usr" {
			candidates = append(candidates,
				configFile{"mca-openmpi", prefix + "/etc/openmpi-mca-params.conf"}, configFile{"mca-prte", prefix + "/etc/prte-mca-params.conf"},
				configFile{"mca-pmix", prefix + "/etc/pmix-mca-params.conf"})
		}
	}
	var out []configFile
	for _, c := range candidates {
		c.path = strings.Trim(cleanPath(c.path), "/")
		if c.path == "" || c.path == "." || slices.Contains(out, c) {
			continue
		}
		if st, err := fsStat(m.root, c.path); err == nil && st.Mode().IsRegular() {
			out = append(out, c)
		}
	}
	return out
}
