package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/report"
	"fabrun/profiles"
)

// Selftest tries what the others need on this node.
func (n Node) Selftest(ctx context.Context) error {
	checks := []report.SelfCheck{n.tryProfile(), n.tryState(), n.trySystemLog(), n.tryLook(ctx)}
	checks = append(checks, n.trySlurm(ctx)...)
	bad := slices.ContainsFunc(checks, func(c report.SelfCheck) bool { return c.OK != nil && !*c.OK })
	if n.JSON {
		if err := report.SelftestJSON(n.Stdout, checks); err != nil {
			return err
		}
	} else {
		for _, c := range checks {
			word := "unknown"
			if c.OK != nil {
				word = map[bool]string{true: "ok", false: "BAD"}[*c.OK]
			}
			line := fmt.Sprintf("%-7s  %-12s  %s\n", word, c.Name, c.Text)
			if c.Hint != "" {
				line += fmt.Sprintf("%23s→ %s\n", "", c.Hint)
			}
			if _, err := fmt.Fprint(n.Stdout, line); err != nil {
				return err
			}
		}
	}
	if bad {
		return exit.ErrFindings
	}
	return nil
}

func works(name, format string, args ...any) report.SelfCheck {
	return report.SelfCheck{Name: name, OK: new(true), Text: fmt.Sprintf(format, args...)}
}

func fails(name, hint string, err error) report.SelfCheck {
	return report.SelfCheck{Name: name, OK: new(false), Text: err.Error(), Hint: hint}
}

func (n Node) tryProfile() report.SelfCheck {
	if n.Profile == "" {
		return works("profile", "none named: every active port counts, no rate is wanted")
	}
	p, err := profiles.Load(profiles.Dirs{Profiles}, n.Profile)
	if err != nil {
		return fails("profile", "the doors read "+Profiles+" and the built-in profiles only; 'fabrun profile check FILE' finds mistakes", err)
	}
	return works("profile", "%s (%s)", p.Name, p.Source)
}

func (n Node) tryState() report.SelfCheck {
	store, err := openNodeStore(n.State)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(store.dir, ".selftest-"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return fails("state", "a directory that only root can write: --state", err)
	}
	return works("state", "%s can be written", n.State)
}

func (n Node) trySystemLog() report.SelfCheck {
	log := openSystemLog(n.Syslog, "slurm selftest")
	defer log.close()
	log.priority = syslogInfo
	fmt.Fprintln(log, "what the doors say arrives here")
	if log.err != nil {
		return fails("log", "what fabrun says in a prolog is lost: slurmd keeps no output; run rsyslogd or journald, or name its socket: --syslog", log.err)
	}
	return works("log", "%s took a line: journalctl -t fabrun, or /var/log/syslog", n.Syslog)
}

func (n Node) tryLook(ctx context.Context) report.SelfCheck {
	ctx, cancel := context.WithTimeout(ctx, n.Deadline)
	defer cancel()
	began := time.Now()
	look, err := n.look(ctx, nil)
	took := time.Since(began)
	switch {
	case err != nil:
		return fails("look", "", err)
	case took > n.Deadline:
		return fails("look", "--deadline of the doors", fmt.Errorf("took %v: the doors give up after %v", took.Round(time.Millisecond), n.Deadline))
	case len(look.faults) > 0:
		return fails("look", "the prolog would drain this node", errors.New(faultReason(look.faults)))
	}
	return works("look", "%d active fabric ports, no fault, in %v", look.ports, took.Round(time.Millisecond))
}

// trySlurm asks scontrol for this node and for what slurm.conf calls.
func (n Node) trySlurm(ctx context.Context) []report.SelfCheck {
	scontrol, err := findScontrol(n.Scontrol)
	if err != nil {
		return []report.SelfCheck{{Name: "scontrol", Text: err.Error(), Hint: "only 'fabrun slurm health' needs it"}}
	}
	ctx, cancel := context.WithTimeout(ctx, n.Deadline)
	defer cancel()
	node := n.name()
	out, err := exec.CommandContext(ctx, scontrol, "--oneliner", "show", "node", node).CombinedOutput()
	if err != nil {
		return []report.SelfCheck{fails("scontrol", "is slurmctld up, and is this the node's name? --node", fmt.Errorf("%s show node %s: %w: %s", scontrol, node, err, strings.TrimSpace(string(out))))}
	}
	checks := []report.SelfCheck{works("scontrol", "%s knows node %s", scontrol, node)}
	out, err = exec.CommandContext(ctx, scontrol, "show", "config").Output()
	if err != nil {
		return append(checks, fails("slurm.conf", "", fmt.Errorf("%s show config: %w", scontrol, err)))
	}
	return append(checks, slurmScripts(string(out))...)
}

// slurmScripts looks at what slurm.conf calls, as "scontrol show config" tells it.
func slurmScripts(config string) []report.SelfCheck {
	var out []report.SelfCheck
	for line := range strings.Lines(config) {
		name, value, _ := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case name == "SchedulerParameters" && strings.Contains(value, "nohold_on_prolog_fail"):
			out = append(out, works(name, "nohold_on_prolog_fail: a job whose prolog failed runs elsewhere at once"))
		case !slices.Contains([]string{"Prolog", "Epilog", "TaskProlog", "HealthCheckProgram"}, strings.TrimSuffix(name, "[0]")) || value == "(null)" || value == "":
		case strings.ContainsAny(value, "*?["):
			files, err := filepath.Glob(value)
			if err != nil || len(files) == 0 {
				out = append(out, fails(name, "", fmt.Errorf("%s: no file of that pattern", value)))
			}
			for _, f := range files {
				out = append(out, tryScript(name, f))
			}
		default:
			out = append(out, tryScript(name, value))
		}
	}
	return out
}

func tryScript(name, path string) report.SelfCheck {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return fails(name, "slurmd drains a node whose Prolog is not there", err)
	case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return fails(name, "chmod 755 "+path, fmt.Errorf("%s cannot be executed", path))
	}
	text, err := files.Read(path)
	if err != nil {
		return report.SelfCheck{Name: name, Text: err.Error()}
	}
	for word := range strings.FieldsSeq(string(text)) {
		word = strings.Trim(word, `"'`)
		if filepath.Base(word) != "fabrun" || !filepath.IsAbs(word) {
			continue
		}
		if st, err := os.Stat(word); err != nil || st.Mode()&0o111 == 0 {
			return fails(name, "install fabrun there, on every node", fmt.Errorf("%s calls %s, which is not there or cannot be executed", path, word))
		}
		return works(name, "%s calls %s", path, word)
	}
	return works(name, "%s does not call fabrun by its path", path)
}
