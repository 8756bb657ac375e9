package job

import (
	"fmt"
	"os"
	"path/filepath"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// ProfileDirs is where a site and a user keep profiles, lowest first.
func (a *Call) ProfileDirs() profiles.Dirs {
	dirs := profiles.Dirs{"/etc/fabrun/profiles"}
	config, ok := a.Getenv("XDG_CONFIG_HOME")
	if home, has := a.Getenv("HOME"); (!ok || config == "") && has && home != "" {
		config, ok = filepath.Join(home, ".config"), true
	}
	if ok && filepath.IsAbs(config) {
		dirs = append(dirs, filepath.Join(config, "fabrun", "profiles"))
	}
	return dirs
}

// FabricProfile is the profile of --profile; nil where none was named.
func (a *Call) FabricProfile() (*profiles.Profile, error) {
	if a.Profile == "" {
		return nil, nil
	}
	p, err := profiles.Load(a.ProfileDirs(), a.Profile)
	if err != nil {
		return nil, exit.UsageError(err, "'fabrun profile list' names those there are")
	}
	return &p, nil
}

// Settings is what is already set: in the environment of a snapshot, or in
// this process's.
func (a *Call) Settings(h *topology.Host) []envgen.Setting {
	if a.From == "" {
		return cmdline.Settings(a.Env)
	}
	env, left := a.ReplayEnv(*h)
	if left != "" && !a.Quiet {
		fmt.Fprintf(a.Own(), "note: %s\n", left)
	}
	return cmdline.Settings(env)
}

// Proposals say which profile fits what is seen; it is not taken by itself. With
// files, a profile's match.files are looked for on this machine too.
func (a *Call) Proposals(h *topology.Host, files bool) []finding.Finding {
	seen := envgen.SeenOn(h)
	if files {
		seen.Exists = func(path string) bool {
			_, err := os.Stat(filepath.Join("/", a.Root, path))
			return err == nil
		}
	}
	p, ok := profiles.Propose(a.ProfileDirs(), seen)
	if !ok {
		return nil
	}
	return []finding.Finding{{
		ID: "profile.proposal", Severity: finding.Note, Host: h.Name, Subject: p.Name, Seen: p.Why, Wanted: "a fabric profile",
		Why: "this looks like: " + p.About, Hint: "--profile " + p.Name,
	}}
}
