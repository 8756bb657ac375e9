package live

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fabrun/topology"
	"fabrun/topology/discover"
)

// Options say what is asked of the machine beyond what a plan needs.
type Options struct {
	Env []string // the environment of the process, NAME=value

	Counters bool   // read port counters and ethtool statistics
	Opinions bool   // ask ghw and rdmamap, through the helper
	ACS      bool   // read the ACS bits of PCI bridges (needs root to say anything)
	Helper   string // path of fabrun-nvml, which asks NVML; "" does not start it

	Tuning bool // governors, interrupts, device control, kernel log

	// Places are paths that a job needs on every host; LibraryPath is the
	// LD_LIBRARY_PATH of where the job is started.
	Places      []Asked
	LibraryPath string

	// Attempt bounds what is read; nil waits for ever.
	Attempt *Attempt

	// Launchers asks the launchers in PATH for their versions; nil does not:
	// this package runs nothing but its helper.
	Launchers func() []topology.Launcher
}

// Everything asks for all that can be learnt, which takes up to some hundred
// milliseconds. helper is as in Options.Helper.
func Everything(env []string, helper string) Options {
	return Options{Env: env, Counters: true, Opinions: true, ACS: true, Tuning: true, Helper: helper}
}

// FS returns the file tree of this machine, as os.DirFS("/") has it, with the
// fabrun/ sections that package discover documents laid over it. A section is
// taken when it is first read, and then stays as it is: whoever reads the tree
// twice sees the same machine twice.
//
// With no option set, everything in it that a plan needs takes a few
// milliseconds; nothing is executed and nothing is loaded.
func FS(ctx context.Context, opts Options) fs.FS {
	return newOverlay(ctx, opts.Attempt.FS(thisMachine()), "/", opts)
}

func newOverlay(ctx context.Context, root fs.FS, rootPath string, opts Options) *overlay {
	m := &machine{root: root, path: rootPath, opts: opts}
	o := &overlay{root: root, sections: map[string]func() ([]byte, error){}, attempt: opts.Attempt}
	add := func(name string, f func() ([]byte, error)) { o.sections[name] = sync.OnceValues(f) }
	add(discover.SectionLimits, m.limits)
	add(discover.SectionAffinity, m.affinity)
	add(discover.SectionEnv, m.env)
	add(discover.SectionAddrs, m.addrs)
	add(discover.SectionRoutes, m.routes)
	add(discover.SectionRules, m.rules)
	add(discover.SectionRDMANetns, m.rdmaNetns)
	add(discover.SectionDevices, m.devices)
	add(discover.SectionContainer, m.container)
	add(discover.SectionModules, m.modules)
	add(discover.SectionIOMMU, m.iommu)
	add(discover.SectionPeerMem, m.peerMemory)
	add(discover.SectionSoftware, m.software)
	add(discover.SectionClock, m.clock)
	add(discover.SectionSession, m.session)
	if len(opts.Places) > 0 {
		add(discover.SectionPlaces, m.places)
	}
	for _, c := range m.configFiles() {
		add(discover.SectionConfig+"/"+c.kind+"/"+c.path, func() ([]byte, error) { return readBounded(root, c.path, maxConfig) })
	}
	for _, nd := range m.physicalNetdevs() {
		add(discover.SectionDCB+"/"+nd, func() ([]byte, error) { return m.dcbOf(nd) })
		add(discover.SectionEthtool+"/"+nd, func() ([]byte, error) { return ethtoolOf(nd, opts.Counters) })
	}
	if opts.Tuning {
		add(discover.SectionCPUFreq, m.cpufreq)
		add(discover.SectionIRQs, m.irqs)
		add(discover.SectionPCIe, m.pcie)
		add(discover.SectionKernelLog, m.kernelLog)
	}
	if opts.Counters {
		add(discover.SectionCounters, m.counters)
	}
	add(discover.SectionUser, func() ([]byte, error) { return fmt.Appendf(nil, "uid %d\n", os.Getuid()), nil })
	if opts.Launchers != nil {
		add(discover.SectionLaunchers, func() ([]byte, error) { return launchersText(opts.Launchers()), nil })
	}
	if opts.Helper != "" {
		add(discover.SectionNVML, func() ([]byte, error) { return nvml(ctx, opts.Helper) })
		if opts.Opinions {
			add(discover.SectionOpinions, func() ([]byte, error) { return secondOpinions(ctx, opts.Helper) })
		}
	}
	return o
}

var errNoReaderAt = errors.New("cannot be read at an offset")

// machine is what the sections are taken from.
type machine struct {
	root fs.FS
	path string // of root, for what must be opened and not only read
	opts Options

	dirs   []string          // with launchers; nil not looked yet
	rodata map[string][]byte // constants of libraries, by file
}

func (m *machine) getenv(name string) string {
	for _, kv := range slices.Backward(m.opts.Env) {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// read returns the trimmed text of a small file, "" where it cannot be read.
func (m *machine) read(name string) string {
	text, err := readBounded(m.root, name, 64<<10)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (m *machine) exists(name string) bool {
	_, err := fs.Stat(m.root, name)
	return err == nil
}

// names lists a directory, nil where it cannot be read.
func (m *machine) names(dir string) []string {
	entries, err := fs.ReadDir(m.root, dir)
	if err != nil {
		return nil
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}
	return out
}

// physicalNetdevs are the netdevs with a device below: the ones that have DCB
// and ethtool statistics, and the ones whose number does not grow with pods.
func (m *machine) physicalNetdevs() []string {
	return slices.DeleteFunc(m.names("sys/class/net"), func(nd string) bool {
		return !fs.ValidPath(nd) || !m.exists("sys/class/net/"+nd+"/device")
	})
}

// maxConfig bounds a configuration file.
const maxConfig = 256 << 10

// readBounded reads at most max bytes of a file.
func readBounded(fsys fs.FS, name string, max int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	//nolint:errcheck // read only
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, max))
}

// overlay is a file tree with the fabrun/ sections laid over it.
type overlay struct {
	root     fs.FS
	sections map[string]func() ([]byte, error)
	attempt  *Attempt
}

var (
	_ fs.ReadFileFS = (*overlay)(nil)
	_ fs.ReadDirFS  = (*overlay)(nil)
	_ fs.StatFS     = (*overlay)(nil)
	_ fs.ReadLinkFS = (*overlay)(nil)
)

func ours(name string) bool { return name == "fabrun" || strings.HasPrefix(name, "fabrun/") }

func (o *overlay) section(op, name string) ([]byte, error) {
	f, ok := o.sections[name]
	if !ok {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	kind := aSection
	switch name {
	case discover.SectionLaunchers, discover.SectionNVML, discover.SectionOpinions:
		kind = aProgram
	}
	flight, err := o.attempt.begin(op, name, kind)
	if err != nil {
		return nil, err
	}
	text, err := f()
	o.attempt.end(flight)
	switch {
	case err != nil:
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	case text == nil:
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return text, nil
}

// Open implements fs.FS.
func (o *overlay) Open(name string) (fs.File, error) {
	if !ours(name) {
		return o.root.Open(name)
	}
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if entries, err := o.ReadDir(name); err == nil {
		return &memDir{info: memInfo{name: path.Base(name), dir: true}, entries: entries}, nil
	}
	text, err := o.section("open", name)
	if err != nil {
		return nil, err
	}
	return &memFile{Reader: bytes.NewReader(text), info: memInfo{name: path.Base(name), size: int64(len(text))}}, nil
}

// ReadFile implements fs.ReadFileFS.
func (o *overlay) ReadFile(name string) ([]byte, error) {
	if !ours(name) {
		return fs.ReadFile(o.root, name)
	}
	text, err := o.section("open", name)
	return slices.Clone(text), err
}

// ReadDir implements fs.ReadDirFS. Entries of fabrun/ are named whether or not
// their section can be taken, since taking it may be what costs.
func (o *overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	if !ours(name) {
		return fs.ReadDir(o.root, name)
	}
	kinds := map[string]bool{}
	for p := range o.sections {
		if rest, ok := strings.CutPrefix(p, name+"/"); ok {
			first, _, deeper := strings.Cut(rest, "/")
			kinds[first] = deeper
		}
	}
	if len(kinds) == 0 {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	var entries []fs.DirEntry
	for n, dir := range kinds {
		entries = append(entries, fs.FileInfoToDirEntry(memInfo{name: n, dir: dir}))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Stat implements fs.StatFS.
func (o *overlay) Stat(name string) (fs.FileInfo, error) {
	if !ours(name) {
		return fs.Stat(o.root, name)
	}
	f, err := o.Open(name)
	if err != nil {
		return nil, err
	}
	return f.Stat()
}

// Lstat implements fs.ReadLinkFS.
func (o *overlay) Lstat(name string) (fs.FileInfo, error) {
	if !ours(name) {
		return fs.Lstat(o.root, name)
	}
	return o.Stat(name)
}

// ReadLink implements fs.ReadLinkFS.
func (o *overlay) ReadLink(name string) (string, error) {
	if !ours(name) {
		return fs.ReadLink(o.root, name)
	}
	return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
}

type memInfo struct {
	name string
	size int64
	dir  bool
}

func (i memInfo) Name() string { return i.name }
func (i memInfo) Size() int64  { return i.size }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }

type memFile struct {
	*bytes.Reader
	info memInfo
}

func (f *memFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *memFile) Close() error               { return nil }

type memDir struct {
	info    memInfo
	entries []fs.DirEntry
}

func (d *memDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *memDir) Close() error               { return nil }
func (d *memDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: fs.ErrInvalid}
}

func (d *memDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		rest := d.entries
		d.entries = nil
		return rest, nil
	}
	if len(d.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.entries))
	rest := d.entries[:n]
	d.entries = d.entries[n:]
	return rest, nil
}

// osPath is where name of the tree lies on this machine.
func (m *machine) osPath(name string) string { return filepath.Join(m.path, filepath.FromSlash(name)) }

func launchersText(found []topology.Launcher) []byte {
	var b []byte
	for _, l := range found {
		p := l.Path
		if p == "" || strings.ContainsAny(p, "\t\n") {
			p = "-"
		}
		b = fmt.Appendf(b, "%s\t%s\t%q\n", l.Name, p, l.Version)
	}
	return b
}
