package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"fabrun/envgen"
	"fabrun/topology/finding"
)

// envFormat writes one variable so that its reader gets the value back
// exactly, or says why that is not possible.
type envFormat struct {
	name  string
	about string
	line  func(name, value string) (string, error)
	sep   string // between two
}

// envFormats are the forms in which variables are handed on.
func envFormats() []envFormat {
	return []envFormat{
		{"shell", "for eval in sh, bash, zsh, ksh", envShell, "\n"},
		{"fish", "for fish's source", envFish, "\n"},
		{"dotenv", "a .env file", envDotenv, "\n"},
		{"docker", "for docker or podman --env-file", envDocker, "\n"},
		{"slurm", "what a Slurm task prolog prints", envSlurm, "\n"},
		{"openmpi", "words for Open MPI's mpirun: -x NAME=VALUE", envOpenMPI, " "},
		{"hydra", "words for MPICH's and Intel MPI's mpiexec: -genv NAME VALUE", envHydra, " "},
		{"k8s", "the env list of a container in Kubernetes", envKubernetes, "\n"},
	}
}

// EnvFormats are the names that Env takes, json among them.
func EnvFormats() []string {
	var out []string
	for _, f := range envFormats() {
		out = append(out, f.name)
	}
	return append(out, "json")
}

// OwnVars are the variables that fabrun brings in: what somebody set before
// is there already.
func OwnVars(vars []envgen.Var) []envgen.Var {
	return slices.DeleteFunc(slices.Clone(vars), func(v envgen.Var) bool {
		return v.Origin == envgen.FromUser || v.Origin == envgen.FromSite || v.Origin == envgen.FromImage
	})
}

// Env writes variables in one of EnvFormats (but json). A value that the
// format cannot carry is an error that names the variable.
func Env(w io.Writer, vars []envgen.Var, format string) error {
	formats := envFormats()
	i := slices.IndexFunc(formats, func(f envFormat) bool { return f.name == format })
	if i < 0 {
		return fmt.Errorf("unknown format %q", format)
	}
	f := formats[i]
	var lines []string
	for _, v := range vars {
		if !envName(v.Name) {
			return fmt.Errorf("%q is not a name that a shell can set", v.Name)
		}
		if strings.ContainsRune(v.Value, 0) {
			return fmt.Errorf("%s: a value cannot hold a zero byte", v.Name)
		}
		line, err := f.line(v.Name, v.Value)
		if err != nil {
			return fmt.Errorf("%s: %s cannot carry this value: %w", v.Name, format, err)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(w, strings.Join(lines, f.sep)+"\n")
	return err
}

func envName(s string) bool {
	for i, r := range s {
		if !(r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || i > 0 && r >= '0' && r <= '9') {
			return false
		}
	}
	return s != ""
}

// plainWord says whether a text needs no quotes in any shell or file format.
func plainWord(s string) bool {
	for _, r := range s {
		if !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:,+@%", r)) {
			return false
		}
	}
	return s != ""
}

func shellQuote(s string) string {
	if plainWord(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func envShell(name, value string) (string, error) {
	return "export " + name + "=" + shellQuote(value), nil
}

// fish knows two escapes inside single quotes: \\ and \'.
func envFish(name, value string) (string, error) {
	return "set -gx " + name + " '" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'", nil
}

// There is no one grammar of .env files. Single quotes are literal for all
// readers as long as the value has neither a quote nor a backslash; in double
// quotes all undo \\, \" and \n, and some expand $.
func envDotenv(name, value string) (string, error) {
	switch {
	case plainWord(value):
		return name + "=" + value, nil
	case strings.Contains(value, "${"):
		return "", fmt.Errorf("some readers expand ${…} even in single quotes")
	case !strings.ContainsAny(value, "'\\\n\r"):
		return name + "='" + value + "'", nil
	case strings.ContainsAny(value, "$`"):
		return "", fmt.Errorf("readers differ on a dollar sign beside a quote, a backslash or a line break")
	case strings.Contains(value, "\r"):
		return "", fmt.Errorf("readers differ on a carriage return")
	case strings.HasSuffix(value, `\`):
		return "", fmt.Errorf("readers differ on a backslash before the closing quote")
	}
	return name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value) + `"`, nil
}

// docker takes everything after the first '=' as it is, up to the line's end.
func envDocker(name, value string) (string, error) {
	if strings.ContainsAny(value, "\n\r") {
		return "", fmt.Errorf("it has a line break")
	}
	return name + "=" + value, nil
}

// slurmstepd takes the rest of the line literally (src/slurmd/slurmstepd/task.c).
func envSlurm(name, value string) (string, error) {
	if strings.ContainsAny(value, "\n\r") {
		return "", fmt.Errorf("it has a line break")
	}
	return "export " + name + "=" + value, nil
}

// Words for a command line are quoted only where they must be: $(fabrun env …)
// undoes no quotes, so that what needs some wants eval.
func envOpenMPI(name, value string) (string, error) {
	return "-x " + ShellWords([]string{name + "=" + value}), nil
}

func envHydra(name, value string) (string, error) {
	return "-genv " + name + " " + ShellWords([]string{value}), nil
}

// Kubernetes expands $(NAME) in values, and "$$" is a dollar sign; JSON's
// strings are YAML's double-quoted ones.
func envKubernetes(name, value string) (string, error) {
	text, err := jsonText(strings.ReplaceAll(value, "$", "$$"))
	if err != nil {
		return "", err
	}
	return "- name: " + name + "\n  value: " + text, nil
}

func jsonText(s string) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

type envJSON struct {
	Schema   string            `json:"schema"`
	Host     *string           `json:"host"`
	Contract *string           `json:"contract"` // what a job should run on here
	RDMA     bool              `json:"rdma"`     // has the node RDMA that a job can use?
	Vars     []envgen.Var      `json:"vars"`
	Left     []envgen.Var      `json:"left_unset"` // what was left alone, and why
	Findings []finding.Finding `json:"findings"`
}

// EnvJSON writes schema fabrun/env/v1 for one host of a result.
func EnvJSON(w io.Writer, res envgen.Result, host envgen.HostEnv) error {
	return writeJSON(w, envJSON{
		"fabrun/env/v1", known(host.Host), known(res.Contract), res.RDMA, varsJSON(host.Vars), varsJSON(host.Left), list(res.Findings),
	})
}

// EnvExplain writes everything that is known about each variable: value, who
// said it, rule, reason, evidence, what else could have been, and what breaks.
func EnvExplain(w io.Writer, vars []envgen.Var) error {
	t := &text{w: w}
	for i, v := range vars {
		if i > 0 {
			t.printf("\n")
		}
		who, by := string(v.Origin), "set by"
		if v.Value == "" && v.Origin == envgen.FromPlan {
			by = "left by"
			t.printf("%s is not set\n", v.Name)
		} else {
			t.printf("%s=%s\n", v.Name, shellQuote(v.Value))
		}
		if v.Scope == envgen.NodeScope {
			who += ", per node"
		} else if v.Scope == envgen.RankScope {
			who += ", per rank"
		}
		t.printf("  %-10s %s (%s)\n", by, who, v.Rule)
		t.wrap("  why        ", v.Why)
		for j, e := range v.Evidence {
			head := "             "
			if j == 0 {
				head = "  seen       "
			}
			t.wrap(head, e)
		}
		for j, r := range v.Rejected {
			head := "             "
			if j == 0 {
				head = "  rejected   "
			}
			t.wrap(head, r.Value+": "+r.Why)
		}
		if v.Overrode != "" {
			t.wrap("  overrode   ", v.Overrode)
		}
		if v.IfWrong != "" {
			t.wrap("  if changed ", v.IfWrong)
		}
	}
	return t.err
}
