package live

import (
	"bytes"
	"debug/elf"
	"io"
	"path"
	"slices"
	"strings"

	"fabrun/topology"
)

// launchers finds the MPI installations: one entry a prefix and kind, with the
// launcher's path, the version its library says, and for Open MPI whether it
// has a UCX component. Nothing is run.
func (m *machine) launchers(add func(topology.Software)) {
	seen := map[string]bool{}
	for _, dir := range m.launcherDirs() {
		for _, name := range []string{"mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra", "mpirun.mpich"} {
			file := dir + "/" + name
			if !m.exists(file) {
				continue
			}
			real := m.resolve(file)
			if seen[real] {
				continue
			}
			seen[real] = true
			if s, ok := m.launcher(file, real); ok {
				add(s)
			}
		}
	}
}

// launcher says which MPI a launcher belongs to: by its real name, else by the
// library of its prefix.
func (m *machine) launcher(file, real string) (topology.Software, bool) {
	s := topology.Software{Path: file}
	dir, base := path.Split(real)
	prefix := path.Dir(strings.TrimSuffix(dir, "/"))
	libs := []string{prefix + "/lib", prefix + "/lib64", prefix + "/lib/release", prefix + "/lib/x86_64-linux-gnu", prefix + "/lib/aarch64-linux-gnu", prefix + "/lib/powerpc64le-linux-gnu"}
	first := func(sonames ...string) string {
		for _, so := range sonames {
			for _, lib := range libs {
				if p := strings.TrimPrefix(lib+"/"+so, "./"); m.exists(p) {
					return p
				}
			}
		}
		return ""
	}
	switch {
	case slices.Contains([]string{"orterun", "prterun", "prun", "mpirun.openmpi"}, base) || base == "mpirun" && m.exists(dir+"ompi_info") || base == "mpiexec" && m.exists(dir+"ompi_info"):
		s.Kind = "openmpi"
		if lib := first("libmpi.so.40", "libmpi.so.80", "libmpi.so.20", "libmpi.so.12"); lib != "" {
			s.Version = releaseIn(m.readOnlyData(lib), false)
			s.Detail, s.Hash = m.openMPIUCX(lib, libs), m.buildID(lib)
		}
	case strings.HasPrefix(base, "mpiexec") || strings.HasPrefix(base, "mpirun"):
		lib := first("libmpich.so.12", "libmpi.so.12", "libmpi.so")
		if lib == "" {
			return s, false
		}
		text := m.readOnlyData(lib)
		s.Hash = m.buildID(lib)
		switch {
		case bytes.Contains(text, []byte("Intel(R) MPI Library")):
			s.Kind, s.Version = "intelmpi", firstMatch(text, intelVersion)
		case bytes.Contains(text, []byte("MVAPICH")):
			s.Kind, s.Version = "mvapich", firstMatch(text, mvapichPlain)
		case bytes.Contains(text, []byte("MPICH")):
			s.Kind, s.Version = "mpich", releaseIn(text, false)
		default:
			return s, false
		}
	default:
		return s, false
	}
	return s, true
}

// openMPIUCX says whether Open MPI has its UCX component: as a plugin, or built
// into the library, which then needs UCX's.
func (m *machine) openMPIUCX(lib string, libs []string) string {
	const present, absent = "UCX component present", "UCX component absent"
	plugins := false
	for _, dir := range append([]string{path.Dir(lib)}, libs...) {
		for _, sub := range []string{"openmpi", "openmpi/lib/openmpi3", "openmpi/lib/openmpi", "openmpi/lib/openmpi40"} {
			if m.exists(dir + "/" + sub + "/mca_pml_ucx.so") {
				return present
			}
			plugins = plugins || m.exists(dir+"/"+sub+"/mca_pml_ob1.so") || m.exists(dir+"/"+sub+"/mca_pml_cm.so")
		}
	}
	needs, err := m.needed(lib)
	if err != nil {
		return ""
	}
	if slices.ContainsFunc(needs, func(n string) bool { return strings.HasPrefix(n, "libucp.so") }) {
		return present
	}
	// Without any plugin directory that was recognised, and without UCX in the
	// library's needs, a plugin may still lie where nobody looked.
	if plugins || bytes.Contains(m.readOnlyData(lib), []byte("mca_pml_ob1")) {
		return absent
	}
	return ""
}

func (m *machine) openELF(file string) (*elf.File, io.Closer, error) {
	f, err := m.root.Open(file)
	if err != nil {
		return nil, nil, err
	}
	r, ok := f.(io.ReaderAt)
	if !ok {
		//nolint:errcheck // read only
		_ = f.Close()
		return nil, nil, errNoReaderAt
	}
	e, err := elf.NewFile(r)
	if err != nil {
		//nolint:errcheck // read only
		_ = f.Close()
		return nil, nil, err
	}
	return e, f, nil
}

// maxROData bounds what is searched for a version: NCCL's is below 2 MiB
// beside some 200 MiB of GPU code in other sections.
const maxROData = 8 << 20

// readOnlyData returns the constants of a library, nil where they cannot be read.
func (m *machine) readOnlyData(file string) []byte {
	if data, ok := m.rodata[file]; ok {
		return data
	}
	data := m.loadROData(file)
	if m.rodata == nil {
		m.rodata = map[string][]byte{}
	}
	m.rodata[file] = data
	return data
}

func (m *machine) loadROData(file string) []byte {
	e, closer, err := m.openELF(file)
	if err != nil {
		return nil
	}
	//nolint:errcheck // read only
	defer closer.Close()
	s := e.Section(".rodata")
	if s == nil || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil
	}
	data := make([]byte, min(s.Size, maxROData))
	n, err := s.ReadAt(data, 0)
	if err != nil && n == 0 {
		return nil
	}
	return data[:n]
}

func (m *machine) needed(file string) ([]string, error) {
	e, closer, err := m.openELF(file)
	if err != nil {
		return nil, err
	}
	//nolint:errcheck // read only
	defer closer.Close()
	return e.ImportedLibraries()
}
