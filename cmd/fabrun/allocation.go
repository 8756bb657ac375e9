package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"fabrun/launcher/hosts"
)

// named is a flag that names hosts. Given but empty, as an unset variable of a
// job script leaves it, is an error and not this machine.
type named string

func (n *named) String() string { return string(*n) }
func (n *named) Type() string   { return "string" }

func (n *named) Set(value string) error {
	if strings.TrimSpace(value) == "" {
		return errors.New("it names no hosts")
	}
	*n = named(value)
	return nil
}

// allocation says where the job's hosts come from: a list or hostfile given by
// flag, else the resource manager, else this machine. Inside an allocation a
// list or hostfile narrows it and can name nothing else.
func (a *app) allocation(list, hostfile string) (hosts.Allocation, error) {
	if list != "" && hostfile != "" {
		return hosts.Allocation{}, usageError(errors.New("--hosts and --hostfile both name the hosts"), "give one of them")
	}
	base, err := hosts.FromEnv(a.getenv, readInput)
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
		if given, err = readJobHosts(hostfile, hosts.AnyDialect); err != nil {
			return given, withHint(fmt.Errorf("--hostfile: %w", err), "")
		}
		given.Source = "--hostfile " + hostfile
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
