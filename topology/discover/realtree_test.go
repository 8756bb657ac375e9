package discover

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/bzip2"
	"compress/gzip"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fabrun/testdata/realdata"
	"fabrun/topology"
)

// treeOf reads a tar of a machine's files as a file system, rooted where sys is.
func treeOf(t *testing.T, file string) []entry {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if strings.HasSuffix(file, ".ttar") {
		return ttar(t, f)
	}
	var r io.Reader = bzip2.NewReader(f)
	if strings.HasSuffix(file, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	var entries []entry
	seen := map[string]bool{}
	tr := tar.NewReader(r)
	for {
		hdr, err := tr.Next()
		if err == io.EOF {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		name := path.Clean(hdr.Name)
		if !strings.HasPrefix(name, "sys") && !strings.HasPrefix(name, "proc/") {
			_, name, _ = strings.Cut(name, "/")
		}
		if name == "" || seen[name] {
			continue
		}
		switch hdr.Typeflag {
		case tar.TypeReg:
			b, err := io.ReadAll(tr)
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, entry{name, isFile, string(b)})
		case tar.TypeSymlink:
			entries = append(entries, entry{name, isLink, hdr.Linkname})
		case tar.TypeDir:
			entries = append(entries, entry{name, isDir, ""})
		default:
			continue
		}
		seen[name] = true
	}
}

// ttar reads the text archive of that name.
func ttar(t *testing.T, r io.Reader) []entry {
	t.Helper()
	var entries []entry
	sc := bufio.NewScanner(r)
	name, lines := "", 0
	for sc.Scan() {
		line := sc.Text()
		switch {
		case lines > 0:
			lines--
			entries[len(entries)-1].value += strings.ReplaceAll(strings.ReplaceAll(line, "EOF", ""), "NULLBYTE", "\x00") + "\n"
		case strings.HasPrefix(line, "Path: "):
			_, name, _ = strings.Cut(line, "/")
		case strings.HasPrefix(line, "Lines: "):
			lines, _ = strconv.Atoi(line[len("Lines: "):])
			entries = append(entries, entry{name, isFile, ""})
		case strings.HasPrefix(line, "SymlinkTo: "):
			entries = append(entries, entry{name, isLink, line[len("SymlinkTo: "):]})
		}
	}
	return entries
}

// hwlocObject is what hwloc's XML says that we can compare.
type hwlocObject struct {
	Type     string        `xml:"type,attr"`
	OSIndex  *int          `xml:"os_index,attr"`
	CPUSet   string        `xml:"cpuset,attr"`
	Complete string        `xml:"complete_cpuset,attr"`
	Memory   *int64        `xml:"local_memory,attr"`
	BusID    string        `xml:"pci_busid,attr"`
	PCIType  string        `xml:"pci_type,attr"`
	Subtype  string        `xml:"subtype,attr"`
	Children []hwlocObject `xml:"object"`
}

func (o *hwlocObject) walk(f func(*hwlocObject)) {
	f(o)
	for i := range o.Children {
		o.Children[i].walk(f)
	}
}

func hwlocMask(s string) []int {
	words := strings.Split(s, ",")
	for i, w := range words {
		words[i] = cmp.Or(w, "0") // hwloc leaves words of zero out
	}
	cpus, err := parseMask(strings.Join(words, ","))
	if err != nil {
		return nil
	}
	return cpus
}

// coresOf counts cores; without all, only those inside a package.
func coresOf(o *hwlocObject, all bool) int {
	n := 0
	for i := range o.Children {
		c := &o.Children[i]
		if c.Type == "Core" && all {
			n++
		}
		n += coresOf(c, all || c.Type == "Package")
	}
	return n
}

// compareHwloc counts every CPU, core, NUMA node and PCI device that hwloc tells.
func compareHwloc(tally *realdata.Tally, name string, h topology.Host, text []byte) {
	var top struct {
		Objects []hwlocObject `xml:"object"`
	}
	dec := xml.NewDecoder(bytes.NewReader(text))
	dec.Strict = false
	if err := dec.Decode(&top); err != nil || len(top.Objects) == 0 {
		tally.Count(false, name, fmt.Sprintf("hwloc XML: %v", err))
		return
	}
	nodes := map[int]topology.NUMANode{}
	for _, n := range h.NUMA {
		nodes[n.ID] = n
	}
	dev := map[string]topology.PCIDevice{}
	for _, d := range h.PCI {
		dev[d.Address] = d
	}
	packages := map[int]bool{}
	for _, c := range h.CPU.Cores {
		packages[c.Package] = true
	}
	hwPackages, cores, hwNodes := 0, 0, 0
	// Where PCI localities conflict, hwloc drops a package and leaves its cores
	// in a group.
	if inPackage, all := coresOf(&top.Objects[0], false), coresOf(&top.Objects[0], true); inPackage > 0 && inPackage < all {
		hwPackages++
	}
	top.Objects[0].walk(func(o *hwlocObject) {
		switch o.Type {
		case "Package":
			hwPackages++
		case "Core":
			want := hwlocMask(o.CPUSet)
			if len(want) == 0 {
				return // offline
			}
			cores++
			tally.Count(slices.ContainsFunc(h.CPU.Cores, func(c topology.Core) bool { return slices.Equal(c.CPUs, want) }), name, fmt.Sprintf("core with CPUs %v", want))
		case "PU":
			if o.OSIndex != nil && o.CPUSet != "" {
				tally.Count(slices.Contains(h.CPU.Online, *o.OSIndex), name, fmt.Sprintf("CPU %d", *o.OSIndex))
			}
		case "NUMANode":
			hwNodes++
			if len(nodes) == 0 {
				return // hwloc makes one where the kernel shows none
			}
			n, ok := nodes[*o.OSIndex]
			on := slices.DeleteFunc(slices.Clone(n.CPUs), func(c int) bool { return !slices.Contains(h.CPU.Online, c) })
			want := hwlocMask(o.CPUSet)
			tally.Count(ok && (slices.Equal(on, want) || len(n.CPUs) == 0), name, fmt.Sprintf("NUMA node %d: CPUs %v, want %v", *o.OSIndex, on, want))
			if o.Memory != nil && *o.Memory > 0 {
				tally.Count(n.MemoryBytes != nil && *n.MemoryBytes >= *o.Memory, name, fmt.Sprintf("NUMA node %d: memory, want %d", *o.OSIndex, *o.Memory))
			}
		case "PCIDev":
			d, ok := dev[o.BusID]
			class, _, _ := strings.Cut(o.PCIType, " ")
			id := ""
			if _, rest, ok := strings.Cut(o.PCIType, "["); ok {
				id, _, _ = strings.Cut(rest, "]")
			}
			if !ok || d.Class == nil {
				tally.Count(false, name, "PCI device "+o.BusID)
				return
			}
			var none uint16 // hwloc has 0 where the tree has no file
			got := fmt.Sprintf("%04x [%04x:%04x]", *d.Class>>8, *cmp.Or(d.Vendor, &none), *cmp.Or(d.Device, &none))
			tally.Count(got == class+" ["+id+"]", name, fmt.Sprintf("PCI device %s: %s, want %s", o.BusID, got, o.PCIType))
		}
	})
	if hwPackages > 0 && len(h.CPU.Cores) > 0 {
		tally.Count(len(packages) == hwPackages, name, fmt.Sprintf("%d packages, want %d", len(packages), hwPackages))
	}
	if cores > 0 {
		tally.Count(len(h.CPU.Cores) == cores, name, fmt.Sprintf("%d cores, want %d", len(h.CPU.Cores), cores))
	}
	if len(nodes) > 0 {
		tally.Count(len(nodes) == hwNodes, name, fmt.Sprintf("%d NUMA nodes, want %d", len(nodes), hwNodes))
	}
}

func TestRealdataSysfs(t *testing.T) {
	dir := realdata.Dir(t, "sysfs")
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	lstopo, lookErr := exec.LookPath("lstopo-no-graphics")
	clean := &realdata.Tally{Set: "sysfs: trees read without a gap"}
	replay := &realdata.Tally{Set: "sysfs: snapshot replays"}
	stored := &realdata.Tally{Set: "sysfs: hwloc XML of the same name"}
	live := &realdata.Tally{Set: "sysfs: lstopo on the same tree"}
	for _, file := range files {
		name := "sysfs/" + filepath.Base(file)
		entries := treeOf(t, file)
		tree, err := newSnapshot(slices.DeleteFunc(entries, func(e entry) bool {
			return e.path == "" || e.path == "."
		}))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h, err := Read(tree)
		clean.Count(err == nil && len(h.Unreadable) == 0, name, fmt.Sprint(err, h.Unreadable))
		if err != nil {
			continue
		}
		var b bytes.Buffer
		if err := Capture(tree, &b); err != nil {
			replay.Count(false, name, err.Error())
			continue
		}
		again, err := Read(mustSnapshot(t, b.String()))
		replay.Count(err == nil && fmt.Sprint(summary(again)) == fmt.Sprint(summary(h)) && len(again.PCI) == len(h.PCI) && len(again.CPU.Cores) == len(h.CPU.Cores), name, "another host")

		base, _, _ := strings.Cut(filepath.Base(file), ".")
		if text, err := os.ReadFile(filepath.Join(realdata.Dir(t, "hwlocxml"), base+".xml")); err == nil {
			compareHwloc(stored, name, h, text)
		}
		if lookErr != nil || strings.HasSuffix(file, ".ttar") {
			continue
		}
		root := t.TempDir()
		for _, e := range tree.entries {
			at := filepath.Join(root, e.path)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			switch e.kind {
			case isFile:
				err = os.WriteFile(at, []byte(e.value), 0o644)
			case isLink:
				err = os.Symlink(e.value, at)
			case isDir:
				err = os.MkdirAll(at, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(lstopo, "--disallowed", "--whole-io", "--of", "xml", "-")
		cmd.Env = append(os.Environ(), "HWLOC_FSROOT="+root, "HWLOC_COMPONENTS=linux,stop", "HWLOC_DUMPED_HWDATA_DIR=/nonexistent",
			"HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES=1")
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: lstopo: %v", name, err)
			continue
		}
		compareHwloc(live, name, h, out)
	}
	clean.Print(t)
	replay.Print(t)
	stored.Print(t)
	if lookErr != nil {
		t.Log("no lstopo here (apt-get install hwloc)")
		return
	}
	live.Print(t)
}

// The RDMA devices of a tree that other programs test with.
func TestRealdataInfiniBandTree(t *testing.T) {
	tree, err := newSnapshot(treeOf(t, filepath.Join(realdata.Dir(t, "sysfs"), "procfs-infiniband.ttar")))
	if err != nil {
		t.Fatal(err)
	}
	h, err := Read(tree)
	if err != nil {
		t.Fatal(err)
	}
	tally := &realdata.Tally{Set: "sysfs: RDMA ports"}
	var got []string
	for _, c := range h.HCAs {
		for _, p := range c.Ports {
			rate := "?"
			if p.RateGbps != nil {
				rate = fmt.Sprint(*p.RateGbps)
			}
			got = append(got, fmt.Sprintf("%s %s %d %s %s %s", c.Name, c.Driver, p.Number, p.State, p.PhysState, rate))
		}
	}
	for _, want := range []string{
		"hfi1_0 hfi1 1 ACTIVE LinkUp 100",
		"mlx4_0 mlx4 1 ACTIVE LinkUp 40",
		"mlx4_0 mlx4 2 ACTIVE LinkUp 40",
		"mlx5_0 mlx5 1 ACTIVE ACTIVE 25", // so it says
	} {
		tally.Count(slices.Contains(got, want), "procfs-infiniband.ttar", want+" in "+fmt.Sprint(got))
	}
	tally.Print(t)
}
