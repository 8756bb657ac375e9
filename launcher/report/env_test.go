package report

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fabrun/envgen"
)

// awkward are values that have broken quoting somewhere.
var awkward = []string{
	"", "=mlx5_0:1,mlx5_1:1", "^ds12", "a b", " lead", "trail ", "it's", `"quoted"`, `back\slash`, `\\server\\`, "$HOME", "${HOME}", "$(id)", "`id`", "$$", "$(",
	"a;b", "a|b&c", "*", "?", "~", "~root", "#x", "a#b", "!x", "%p", "%%", "{a,b}", "[0-3]", "ü–日本", "tab\there", "--option", "-x", "'", "''", `'"`, `\'`, "A=B=C", "line\nbreak", "two\n\nbreaks\n", "\r",
}

func randomValue(r *rand.Rand) string {
	const letters = "ab =^'\"\\$`(){}[]<>|&;*?~#!%,:\t@+-_./ü"
	runes := []rune(letters)
	out := make([]rune, r.IntN(12))
	for i := range out {
		out[i] = runes[r.IntN(len(runes))]
	}
	return string(out)
}

func manyValues() []string {
	r := rand.New(rand.NewPCG(1, 2))
	out := slices.Clone(awkward)
	for range 400 {
		out = append(out, randomValue(r))
	}
	return out
}

// carried are the variables that a format can carry, with its text.
func carried(t *testing.T, format string) ([]envgen.Var, string) {
	t.Helper()
	var vars []envgen.Var
	for i, v := range manyValues() {
		one := envgen.Var{Name: "V" + itoa(i), Value: v}
		if err := Env(&bytes.Buffer{}, []envgen.Var{one}, format); err == nil {
			vars = append(vars, one)
		} else if !strings.ContainsAny(v, "\n\r") && format != "dotenv" {
			t.Errorf("%s refuses %q: %v", format, v, err)
		}
	}
	var b bytes.Buffer
	if err := Env(&b, vars, format); err != nil {
		t.Fatal(err)
	}
	return vars, b.String()
}

func itoa(i int) string {
	b, err := json.Marshal(i)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// compareNUL compares what a program printed (NAME=VALUE, NUL after each) with the variables.
func compareNUL(t *testing.T, vars []envgen.Var, out []byte) {
	t.Helper()
	got := map[string]string{}
	for kv := range strings.SplitSeq(string(out), "\x00") {
		if name, value, ok := strings.Cut(kv, "="); ok {
			got[name] = value
		}
	}
	for _, v := range vars {
		if g, ok := got[v.Name]; !ok || g != v.Value {
			t.Errorf("%s: got %q (%v), want %q", v.Name, g, ok, v.Value)
		}
	}
}

func need(t *testing.T, names ...string) string {
	t.Helper()
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			return p
		}
	}
	t.Skipf("none of %s on this machine", strings.Join(names, ", "))
	return ""
}

func runIt(t *testing.T, stdin string, argv ...string) []byte {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdin = strings.NewReader(stdin)
	var errs bytes.Buffer
	c.Stderr = &errs
	c.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", argv[0], err, errs.String())
	}
	return out
}

func TestShellsReadTheValuesBack(t *testing.T) {
	for _, sh := range []string{"sh", "bash", "zsh", "ksh", "busybox"} {
		t.Run(sh, func(t *testing.T) {
			argv := []string{need(t, sh)}
			if sh == "busybox" {
				argv = append(argv, "sh")
			}
			vars, text := carried(t, "shell")
			if len(vars) != len(manyValues()) {
				t.Errorf("shell carries %d of %d values", len(vars), len(manyValues()))
			}
			compareNUL(t, vars, runIt(t, text+"env -0\n", argv...))
		})
	}
}

func TestFishReadsTheValuesBack(t *testing.T) {
	fish := need(t, "fish")
	vars, text := carried(t, "fish")
	compareNUL(t, vars, runIt(t, text+"env -0\n", fish, "--no-config"))
}

func TestKubernetesListReadsBack(t *testing.T) {
	vars, text := carried(t, "k8s")
	got := map[string]string{}
	name := ""
	for line := range strings.Lines(text) {
		if n, ok := strings.CutPrefix(line, "- name: "); ok {
			name = strings.TrimSpace(n)
		} else if v, ok := strings.CutPrefix(line, "  value: "); ok {
			var s string
			if err := json.Unmarshal([]byte(v), &s); err != nil {
				t.Fatal(err)
			}
			got[name] = expandKubernetes(s)
		}
	}
	for _, v := range vars {
		if got[v.Name] != v.Value {
			t.Errorf("%s: got %q, want %q", v.Name, got[v.Name], v.Value)
		}
	}
}

// expandKubernetes is what the kubelet does to a value with no variable
// defined: "$$" is "$", "$(NAME)" stays when NAME is not known.
func expandKubernetes(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '$' && i+1 < len(s) {
			switch s[i+1] {
			case '$':
				b.WriteByte('$')
				i++
				continue
			case '(':
				return "EXPANDED"
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func TestLinesReadBack(t *testing.T) {
	for format, prefix := range map[string]string{"docker": "", "slurm": "export "} {
		vars, text := carried(t, format)
		got := map[string]string{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), prefix), "=")
			got[name] = value
		}
		for _, v := range vars {
			if got[v.Name] != v.Value {
				t.Errorf("%s: %s: got %q, want %q", format, v.Name, got[v.Name], v.Value)
			}
		}
	}
}

// A .env file is read back by sh itself, and by python-dotenv where it is.
func TestDotenvReadsBack(t *testing.T) {
	vars, text := carried(t, "dotenv")
	if len(vars) < len(manyValues())/2 {
		t.Errorf("dotenv carries only %d of %d", len(vars), len(manyValues()))
	}
	py := need(t, "python3")
	if exec.Command(py, "-c", "import dotenv").Run() != nil {
		t.Skip("python-dotenv is not on this machine")
	}
	file := filepath.Join(t.TempDir(), ".env")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := runIt(t, "", py, "-c", "import dotenv,sys\nfor k,v in dotenv.dotenv_values(sys.argv[1]).items(): sys.stdout.buffer.write((k+'='+v+'\\0').encode())", file)
	compareNUL(t, vars, out)
}

// The words for mpirun and mpiexec, through a shell into the real launcher.
func TestLaunchersReadTheWordsBack(t *testing.T) {
	for format, launchers := range map[string][]string{"openmpi": {"mpirun.openmpi", "mpirun"}, "hydra": {"mpiexec.hydra", "mpiexec.mpich"}} {
		t.Run(format, func(t *testing.T) {
			launcher := need(t, launchers...)
			version := runIt(t, "", launcher, "--version")
			if format == "openmpi" && !bytes.Contains(version, []byte("Open MPI")) && !bytes.Contains(version, []byte("OpenRTE")) {
				t.Skipf("%s is not Open MPI", launcher)
			}
			var vars []envgen.Var
			for i, v := range awkward {
				if !strings.ContainsAny(v, "\n\r") && (v != "" || format != "hydra") {
					vars = append(vars, envgen.Var{Name: "V" + itoa(i), Value: v})
				}
			}
			var b bytes.Buffer
			if err := Env(&b, vars, format); err != nil {
				t.Fatal(err)
			}
			compareNUL(t, vars, runIt(t, launcher+" -np 1 "+strings.TrimSpace(b.String())+" env -0\n", "sh"))
		})
	}
}

func TestEnvRefusesWhatCannotBe(t *testing.T) {
	for _, tt := range []struct{ format, name, value, want string }{
		{"docker", "A", "x\ny", "docker cannot carry"},
		{"slurm", "A", "x\ny", "slurm cannot carry"},
		{"shell", "A", "x\x00y", "zero byte"},
		{"shell", "A;id", "x", "not a name"},
		{"shell", "", "x", "not a name"},
		{"csh", "A", "x", "unknown format"},
		{"dotenv", "A", "it's $5", "dollar"},
	} {
		err := Env(&bytes.Buffer{}, []envgen.Var{{Name: tt.name, Value: tt.value}}, tt.format)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q=%q: %v, want %q", tt.format, tt.name, tt.value, err, tt.want)
		}
	}
}

func TestEnvExplainSaysEverything(t *testing.T) {
	var b bytes.Buffer
	err := EnvExplain(&b, []envgen.Var{{
		Name: "A", Value: "=x", Scope: envgen.NodeScope, Origin: envgen.FromPlan, Rule: "r.r", Why: "w", Evidence: []string{"e1", "e2"},
		Rejected: []envgen.Alternative{{Value: "y", Why: "n"}}, Overrode: "o", IfWrong: "i",
	}})
	want := "A='=x'\n  set by     plan, per node (r.r)\n  why        w\n  seen       e1\n             e2\n  rejected   y: n\n  overrode   o\n  if changed i\n"
	if err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}
