package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fabrun/launcher/remote/remotetest"

	"github.com/google/go-cmp/cmp"
)

// TestRealCheckHosts: check --hosts over a real sshd: every host by its alias
// of ssh_config, failures named with their cause, the same program and
// directory everywhere, and each host's login to the next.
func TestRealCheckHosts(t *testing.T) {
	o := remotetest.NewOpenSSH(t)
	other := remotetest.NewOpenSSH(t)
	fabrun := filepath.Join(o.Dir, "fabrun")
	build := exec.Command("go", "build", "-o", fabrun, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	config := filepath.Join(o.Dir, "config")
	write := func(name, text string) string {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write(config, fmt.Sprintf(`
Host refused
    Port 1
Host stranger
    HostKeyAlias nobody-knows
    UserKnownHostsFile /dev/null
Host other
    Port %d
Host nowhere
    HostName no-such-host.invalid
Match originalhost n2,n3,n4
    HostName 127.0.0.8
Host *
    HostName 127.0.0.7
    Port %d
    User root
    IdentityFile %s
    IdentitiesOnly yes
    UserKnownHostsFile %s
    GlobalKnownHostsFile /dev/null
`, other.Port, o.Port, o.Identity, o.KnownHosts))
	work := filepath.Join(o.Dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	check := func(hosts string, args ...string) (found []string, failing []string, stderr string) {
		t.Helper()
		lists := t.TempDir()
		c := exec.Command(fabrun, append([]string{"check", "--json", "--hosts", hosts, "--ssh-config", config, "--out", lists}, args...)...)
		c.Dir = work
		c.Env = []string{"PATH=" + systemPath, "HOME=" + o.Dir}
		var errs strings.Builder
		c.Stderr = &errs
		out, err := c.Output()
		var v struct {
			Hosts []struct {
				Host     string
				Findings []struct{ ID, Severity, Host, Subject, Seen string }
			}
			Findings []struct{ ID, Severity, Host, Subject, Seen string }
		}
		if jerr := json.Unmarshal(out, &v); jerr != nil {
			t.Fatalf("%v (%v): %s%s", jerr, err, out, errs.String())
		}
		for _, h := range v.Hosts {
			for _, f := range h.Findings {
				if strings.HasPrefix(f.ID, "node.") || strings.HasPrefix(f.ID, "place.") || strings.HasPrefix(f.ID, "across.") {
					seen, _, _ := strings.Cut(f.Seen, ":")
					found = append(found, fmt.Sprintf("%s %s %s %s", f.Severity, f.ID, h.Host, seen))
				}
			}
		}
		slices.Sort(found)
		text, err := os.ReadFile(filepath.Join(lists, "hosts.fail"))
		if err != nil {
			t.Fatal(err)
		}
		return found, strings.Fields(string(text)), errs.String()
	}

	// All reach each other, and find the same things.
	found, _, stderr := check("n[2-4]", "--program", "/bin/ls", "--directory", work)
	if len(found) != 0 {
		t.Errorf("alike: %q\n%s", found, stderr)
	}

	// What is wrong is said of the host, with its cause.
	found, failing, stderr := check("n2,refused,stranger,nowhere,other", "--program", "/no/such/program")
	want := []string{
		"error node.unreachable nowhere unknown-host", "error node.unreachable other changed-key",
		"error node.unreachable refused refused", "error node.unreachable stranger unknown-key", "error place.program n2 not there",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("-want +got\n%s\n%s", diff, stderr)
	}
	for _, h := range []string{"refused", "stranger", "nowhere", "other"} {
		if !slices.Contains(failing, h) {
			t.Errorf("%s is not among the failing: %q", h, failing)
		}
	}

	// The head gets in, the nodes do not get on: only on them is
	// SSH_CONNECTION set, and only the system's ssh asks.
	text, _ := os.ReadFile(config)
	write(config, "Match exec \"test x${SSH_CONNECTION:+y} = xy\"\n    Port 1\n"+string(text))
	found, _, stderr = check("n[2-3]")
	want = []string{"warning across.ssh n2 ssh", "warning across.ssh n3 ssh"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("-want +got\n%s\n%s", diff, stderr)
	}
}

// TestRealPlanThroughJumpHost: a wrong directory and a missing program on the
// nodes behind a jump host are found before the start.
func TestRealPlanThroughJumpHost(t *testing.T) {
	o := remotetest.NewOpenSSH(t)
	fabrun := filepath.Join(o.Dir, "fabrun")
	build := exec.Command("go", "build", "-o", fabrun, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	config := filepath.Join(o.Dir, "config")
	text := fmt.Sprintf("Host n2 n3\n HostName 127.0.0.7\n ProxyJump jump\nHost jump\n HostName 127.0.0.8\nHost *\n Port %d\n User root\n IdentityFile %s\n IdentitiesOnly yes\n UserKnownHostsFile %s\n GlobalKnownHostsFile /dev/null\n", o.Port, o.Identity, o.KnownHosts)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(o.Dir, "a.out")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		argv []string
		want string
	}{
		{[]string{"mpirun", "-np", "2", program}, ""},
		{[]string{"mpirun", "-np", "2", "-wdir", "/no/such/directory", program}, "node.directory /no/such/directory not on n[2-3]"},
	} {
		cmd := exec.Command(fabrun, append([]string{"plan", "--json", "--ssh-config", config, "--hosts", "n[2-3]", "--"}, tc.argv...)...)
		cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=", "FAKE_VERSION=mpirun (Open MPI) 4.1.4")
		out, err := cmd.Output()
		var p struct {
			Looked   struct{ Hosts, Seen int }
			Findings []struct{ ID, Subject, Seen string }
		}
		if jerr := json.Unmarshal(out, &p); jerr != nil {
			t.Fatalf("%v, %v: %s", err, jerr, out)
		}
		if p.Looked.Seen != 2 {
			t.Errorf("looked at %+v", p.Looked)
		}
		var got []string
		for _, f := range p.Findings {
			if strings.HasPrefix(f.ID, "node.") || strings.HasPrefix(f.ID, "place.") {
				got = append(got, f.ID+" "+f.Subject+" "+f.Seen)
			}
		}
		if strings.Join(got, "; ") != tc.want {
			t.Errorf("%q: %q, want %q", tc.argv, got, tc.want)
		}
	}
}
