package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"fabrun/launcher/hosts"
)

// maxHostfile bounds what is read of a file of hosts or of a case.
const maxHostfile = 32 << 20

// readBounded reads a file that somebody else wrote.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	//nolint:errcheck // opened for reading
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHostfile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxHostfile {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxHostfile)
	}
	return text, nil
}

// allocation says where the job's hosts come from: a list or hostfile given by
// flag, else the resource manager, else this machine. Inside an allocation a
// list or hostfile narrows it and can name nothing else.
func (a *app) allocation(list, hostfile string) (hosts.Allocation, error) {
	if list != "" && hostfile != "" {
		return hosts.Allocation{}, usageError(errors.New("--hosts and --hostfile both name the hosts"), "give one of them")
	}
	base, err := hosts.FromEnv(a.getenv, readBounded)
	if err != nil {
		return base, withHint(fmt.Errorf("hosts of the job: %w", err), "unset the variable if it is left from another job")
	}
	var given hosts.Allocation
	switch {
	case list != "":
		if given, err = hosts.ParseList(list); err != nil {
			return given, usageError(err, `like --hosts 'node[01-12]', 'a:8,b:8' or '10.1.4.[1-12]'`)
		}
	case hostfile != "":
		if given, err = readHostfile(hostfile, hosts.AnyDialect); err != nil {
			return given, err
		}
	case base.Source != "":
		return base, nil
	default:
		name, err := os.Hostname()
		if err != nil {
			name = "localhost"
		}
		return hosts.Allocation{Source: "localhost", Hosts: []hosts.Host{{Name: name}}}, nil
	}
	narrows := base.Manager != "" && len(base.Hosts) > 0 && base.Nodes <= len(base.Hosts)
	if !narrows && len(given.Relative) == 0 && len(given.Hosts) > 0 {
		return given, nil
	}
	out, err := hosts.Narrow(base, given)
	if err != nil {
		return out, withHint(err, "inside an allocation only its own hosts can be used; 'fabrun hosts' lists them")
	}
	return out, nil
}

func readHostfile(path string, d hosts.Dialect) (hosts.Allocation, error) {
	text, err := readBounded(path)
	if err != nil {
		return hosts.Allocation{}, fmt.Errorf("read hostfile: %w", err)
	}
	alloc, err := hosts.ParseHostfile(text, d)
	if err != nil {
		return alloc, fmt.Errorf("hostfile %q: %w", path, err)
	}
	alloc.Source = "--hostfile " + path
	return alloc, nil
}
