package main

import (
	"path/filepath"

	"fabrun/launcher/exit"
	"fabrun/profiles"
)

// profileDirs is where a site and a user keep profiles, lowest first.
func (a *app) profileDirs() profiles.Dirs {
	dirs := profiles.Dirs{"/etc/fabrun/profiles"}
	config, ok := a.getenv("XDG_CONFIG_HOME")
	if home, has := a.getenv("HOME"); (!ok || config == "") && has && home != "" {
		config, ok = filepath.Join(home, ".config"), true
	}
	if ok && filepath.IsAbs(config) {
		dirs = append(dirs, filepath.Join(config, "fabrun", "profiles"))
	}
	return dirs
}

// fabricProfile is the profile of --profile; nil where none was named.
func (a *app) fabricProfile() (*profiles.Profile, error) {
	if a.profile == "" {
		return nil, nil
	}
	p, err := profiles.Load(a.profileDirs(), a.profile)
	if err != nil {
		return nil, exit.UsageError(err, "'fabrun profile list' names those there are")
	}
	return &p, nil
}
