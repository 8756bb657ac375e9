package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layer is one row of the architecture: what a package may import of ours, and
// what it must never reach, with the reason.
type layer struct {
	pkg   string
	may   []string // our packages, by direct import
	never []string // standard library by direct import; "mod:" prefixes a module that must not even be reached through others
	why   string
}

// pureStd is what a package of pure decisions never imports.
var pureStd = []string{"os", "os/exec", "os/signal", "net", "net/http", "syscall", "io/fs", "io/ioutil"}

// layers is the table that CONTRIBUTING shows. Imports only go down.
var layers = []layer{
	{"topology/finding", nil, append([]string{"io", "fmt"}, pureStd...), "one shape, no behaviour"},
	{"topology", []string{"topology/finding"}, pureStd, "values and rules on them; the same Host gives the same answer anywhere"},
	{"topology/health", []string{"topology", "topology/finding"}, pureStd, "the one judge of ports; what is right comes as an argument"},
	{"topology/pasted", []string{"topology", "topology/finding"}, pureStd, "text in, values out"},
	{"envgen/vars", nil, pureStd, "what a variable's name says, and the one table of them; below all that reads or carries one"},
	{"topology/discover", []string{"envgen/vars", "topology", "topology/finding"}, []string{"os", "os/exec", "net"}, "reads any fs.FS and nothing else, so that fixtures, snapshots and machines are one path"},
	{"topology/live", []string{"envgen/vars", "topology", "topology/finding", "topology/discover"}, nil, "the machine's own extras; never needed for a plan from a snapshot"},
	{"topology/live/opinions", nil, nil, "only the helper links what it brings: cmd/fabrun must not (TestStartsLight)"},
	{"profiles", nil, []string{"os/exec", "net"}, "what a site knows; it never looks at a machine"},
	{"profiles/qosconf", []string{"profiles", "topology/finding", "topology/pasted"}, pureStd, "a QoS plan as text for hosts and switches, and back"},
	{"envgen", []string{"envgen/vars", "topology", "topology/finding", "profiles"}, pureStd, "decides; the same inputs give the same bytes"},
	{"launcher/lint", []string{"envgen", "envgen/vars", "launcher/cmdline", "launcher/hosts", "topology/finding", "profiles", "topology"}, pureStd, "reads scripts as text and runs nothing"},
	{"launcher/hosts", []string{"topology/finding"}, pureStd, "environment and files come in as values"},
	{"launcher/openfoam", []string{"topology/finding"}, pureStd, "case files come in as text"},
	{"launcher/cmdline", []string{"envgen", "envgen/vars", "launcher/hosts", "topology"}, pureStd, "the one reader of command lines"},
	{"launcher/plan", []string{"envgen", "launcher/cmdline", "launcher/hosts", "profiles", "topology", "topology/finding"}, pureStd, "decides; starting is launcher's"},
	{"launcher/hang", []string{"launcher/watch"}, pureStd, "judges what the looks of all nodes show"},
	{"launcher/watch", []string{"topology"}, pureStd, "judges what readers and samples give it; of topology the words only"},
	{"launcher/watch/contract", []string{"launcher/watch"}, pureStd, "holds a running job to what its plan promised; no clock but that of the samples"},
	{"launcher/remote", nil, nil, "moves bytes and knows nothing of what they mean"},
	{"launcher/remote/remotetest", nil, nil, "an ssh server for tests"},
	{"launcher/check", []string{"profiles", "topology", "topology/finding", "topology/health"}, pureStd, "observes; what must run somewhere is the caller's"},
	{"launcher/measure", []string{"launcher/check", "profiles", "topology", "topology/finding", "topology/health", "topology/pasted"}, []string{"os", "os/exec", "net"}, "says what to run on two ends, and what it came to; running is the caller's"},
	{"launcher", []string{"launcher/plan", "topology"}, []string{"mod:github.com/spf13/cobra", "mod:golang.org/x/crypto"}, "processes, signals, streams; it decides nothing"},
	{"launcher/eyes", []string{"envgen", "launcher", "launcher/cmdline", "launcher/exit", "launcher/files", "launcher/hang", "launcher/hosts", "launcher/look", "launcher/plan", "launcher/remote", "launcher/report", "launcher/watch", "launcher/watch/contract", "topology"}, []string{"mod:github.com/spf13/cobra"}, "reads what a running job leaves: logs, counters, sockets; what it means is launcher/watch's"},
	{"launcher/exit", nil, []string{"os", "os/exec", "net"}, "a status and its error; every package that can fail for a user returns one"},
	{"launcher/files", nil, []string{"os/exec", "net"}, "writes what was asked for, whole or not at all"},
	{"launcher/report", []string{
		"envgen", "launcher/lint", "envgen/vars", "launcher/cmdline", "launcher/hang", "launcher/hosts", "launcher/plan", "launcher/check", "launcher/measure", "launcher/watch", "launcher/watch/contract",
		"profiles", "profiles/qosconf", "topology", "topology/finding", "topology/health", "topology/pasted",
	}, []string{"os", "os/exec", "net"}, "shows; last and alone"},
	{"launcher/look", []string{"launcher/cmdline", "launcher/exit", "launcher/files", "launcher/hosts", "launcher/plan", "launcher/check", "launcher/remote", "launcher/report", "testdata/hosts", "topology", "topology/discover", "topology/finding", "topology/live"}, []string{"mod:github.com/spf13/cobra"}, "looks at machines; judges nothing"},
	{"launcher/trial", []string{"envgen", "launcher", "launcher/cmdline", "launcher/exit", "launcher/hosts", "launcher/look", "launcher/check", "launcher/measure", "launcher/remote", "launcher/report", "profiles", "topology", "topology/finding", "topology/pasted"}, []string{"mod:github.com/spf13/cobra"}, "measures where launcher/measure says, and lets it judge"},
	{"launcher/job", []string{"envgen", "envgen/vars", "launcher", "launcher/cmdline", "launcher/exit", "launcher/eyes", "launcher/files", "launcher/hosts", "launcher/look", "launcher/openfoam", "launcher/plan", "launcher/check", "launcher/measure", "launcher/remote", "launcher/report", "launcher/trial", "profiles", "topology", "topology/finding", "topology/live"}, []string{"mod:github.com/spf13/cobra"}, "the order of one job's steps: look, decide, check, start, watch, end"},
	{"launcher/slurm", []string{"envgen", "launcher/cmdline", "launcher/exit", "launcher/eyes", "launcher/files", "launcher/hosts", "launcher/job", "launcher/check", "launcher/report", "launcher/watch", "profiles", "topology", "topology/finding"}, []string{"mod:github.com/spf13/cobra"}, "what Slurm calls fabrun for; a fault of its own is no fault of the node"},
	{"testdata/hosts", nil, nil, "the machines of the tests and the demo, embedded"},
	{"testdata/realdata", nil, nil, "finds the real data beside the checkout"},
	{"testdata/wait", nil, nil, "tests wait here, and judge no speed"},
}

// homes says where a third-party module may be imported from. Tests are free.
var homes = map[string]string{
	"github.com/spf13/cobra":      "cmd/fabrun",
	"github.com/spf13/pflag":      "cmd/fabrun",
	"github.com/BurntSushi/toml":  "profiles",
	"github.com/jaypipes/ghw":     "topology/live/opinions",
	"github.com/Mellanox/rdmamap": "topology/live/opinions",
	"github.com/NVIDIA/go-nvml":   "cmd/fabrun-nvml",
	"golang.org/x/crypto":         "launcher/remote",
	"golang.org/x/term":           "cmd/fabrun",
	"mvdan.cc/sh/v3":              "launcher/lint",
	"go.yaml.in/yaml":             "launcher",
}

type listedPackage struct {
	ImportPath string
	Doc        string
	Imports    []string
	Deps       []string
}

func goList(t *testing.T) []listedPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Doc,Imports,Deps", "fabrun/...", "fabrun/testdata/hosts", "fabrun/testdata/realdata", "fabrun/testdata/wait")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []listedPackage
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// heavy is what fabrun itself must not link: its initialisation would be part of
// every start, and a job starts 'fabrun rank' once per rank.
var heavy = map[string]string{
	"net/http":                "0.5 ms with what it brings; fabrun-nvml may",
	"github.com/jaypipes/ghw": "links net/http and a second YAML",
}

// TestStartsLight holds the list above against what fabrun links.
func TestStartsLight(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the go command")
	}
	for _, p := range goList(t) {
		if p.ImportPath != "fabrun/cmd/fabrun" {
			continue
		}
		for _, d := range p.Deps {
			for module, why := range heavy {
				if d == module || strings.HasPrefix(d, module+"/") {
					t.Errorf("cmd/fabrun links %s: %s", d, why)
				}
			}
		}
		return
	}
	t.Error("cmd/fabrun is not among the packages")
}

// TestInitsStayLight: what a package works out before main, every start pays.
// Bytes allocated are counted, not time: they are the same on every machine.
// What is dear is made when it is first used (sync.OnceValue).
func TestInitsStayLight(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	program := filepath.Join(t.TempDir(), "fabrun")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	const ours, all = 16 << 10, 256 << 10 // bytes
	sum, seen := 0, false
	for line := range strings.Lines(trace.String()) {
		// init fabrun/envgen @0.92 ms, 0.002 ms clock, 984 bytes, 9 allocs
		w := strings.Fields(line)
		if len(w) != 11 || w[0] != "init" {
			continue
		}
		n, err := strconv.Atoi(w[7])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		sum += n
		if strings.HasPrefix(w[1], "fabrun/") {
			seen = true
			if n > ours {
				t.Errorf("%s allocates %d bytes before main; wanted at most %d", w[1], n, ours)
			}
		}
	}
	if !seen || sum > all {
		t.Errorf("all packages together allocate %d bytes before main; wanted at most %d, and lines of ours:\n%s", sum, all, trace.String())
	}
}

// TestLayers holds the table above against what the packages import.
func TestLayers(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the go command")
	}
	used := map[string]bool{} // third-party modules
	pkgs := goList(t)
	for _, l := range layers {
		if !slices.ContainsFunc(pkgs, func(p listedPackage) bool { return p.ImportPath == "fabrun/"+l.pkg }) {
			t.Errorf("the layer table has %s, which is no package", l.pkg)
		}
	}
	for _, p := range pkgs {
		name := strings.TrimPrefix(p.ImportPath, "fabrun/")
		isCmd := strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "testdata/lab") || strings.HasPrefix(name, "testdata/bench")
		i := slices.IndexFunc(layers, func(l layer) bool { return l.pkg == name })
		if i < 0 && !isCmd {
			t.Errorf("%s has no row in the layer table: what may it import, and why?", name)
			continue
		}
		for _, imp := range p.Imports {
			if own, ok := strings.CutPrefix(imp, "fabrun/"); ok {
				if strings.HasPrefix(own, "cmd/") {
					t.Errorf("%s imports %s: nothing imports a command", name, own)
				} else if !isCmd && !slices.Contains(layers[i].may, own) {
					t.Errorf("%s imports %s, which its row does not allow (%s)", name, own, layers[i].why)
				}
				continue
			}
			if !isCmd && slices.Contains(layers[i].never, imp) {
				t.Errorf("%s imports %s: never (%s)", name, imp, layers[i].why)
			}
			for module, home := range homes {
				if imp == module || strings.HasPrefix(imp, module+"/") {
					used[module] = true
				}
				if (imp == module || strings.HasPrefix(imp, module+"/")) && name != home && !strings.HasPrefix(name, home+"/") {
					t.Errorf("%s imports %s, whose home is %s", name, imp, home)
				}
			}
		}
		if isCmd {
			continue
		}
		for _, may := range layers[i].may {
			if !slices.Contains(p.Imports, "fabrun/"+may) {
				t.Errorf("%s does not import %s, which its row allows: take the permission away", name, may)
			}
		}
		for _, never := range layers[i].never {
			if module, ok := strings.CutPrefix(never, "mod:"); ok {
				for _, d := range p.Deps {
					if strings.HasPrefix(d, module) {
						t.Errorf("%s reaches %s: never (%s)", name, d, layers[i].why)
					}
				}
			}
		}
	}
	for module, home := range homes {
		if !used[module] {
			t.Errorf("nobody imports %s, whose home is %s: take the row away", module, home)
		}
	}
}
