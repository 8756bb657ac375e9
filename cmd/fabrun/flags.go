package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"fabrun/launcher/eyes"
	"fabrun/launcher/hang"
	"fabrun/launcher/job"
	"fabrun/launcher/look"
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

// jobFlags are the flags that run and plan share.
func jobFlags(f *pflag.FlagSet, o *job.Options) {
	f.Var((*named)(&o.Hosts), "hosts", "the job's hosts: a `list` like 'node[01-12]', 'n1:8,n2:8', addresses")
	f.Var((*named)(&o.Hostfile), "hostfile", "read the job's hosts from this `file`")
	f.Var((*named)(&o.Topology), "topology", "order the hosts by switch or block as this `file` says (topology.conf, topology.yaml, topograph)")
	f.BoolVar(&o.Strict, "strict", false, "RDMA or nothing: refuse to start, or end the job, when the plan does not hold")
	f.StringVar(&o.NCCL, "nccl-version", "", "NCCL's `version` in the job, where it is not the one found on the hosts")
	f.StringVar(&o.UCX, "ucx-version", "", "UCX's `version` in the job, likewise")
	o.Preflight = job.PreflightLook
	f.Var(&o.Preflight, "preflight", "before the job: `mode` is look (every check on every host), quick or full (measure RDMA too: every port, every pair), or off (look for what the plan needs and no further)")
	f.StringVar(&o.Exclude, "exclude", "", "leave these hosts out: a `file or list`, such as hosts.fail of 'fabrun check --out'")
	wayFlags(f, &o.Ways)
	f.StringArrayVar(&o.Spread.Carry.Take, "env", nil, "torchrun on several nodes: hand over this variable as well, a `name` or a beginning like 'SSH_*'")
	f.StringArrayVar(&o.Spread.Carry.Leave, "no-env", nil, "likewise: each node keeps its own of this `name`")
	f.BoolVar(&o.Spread.Prefix, "prefix", false, "likewise: every line with its node in front, not only where several nodes speak")
	f.BoolVar(&o.Spread.NoPrefix, "no-prefix", false, "likewise: no line with its node in front")
	o.Hang.After = hang.DefaultAfter
	f.Var((*hangTime)(&o.Hang.After), "hang-after", "say that the job stands still when its ranks have neither computed nor communicated for this `time`; off: never")
	f.Var((*hangTime)(&o.Hang.End), "strict-hang", "end a job that has certainly stood still for this `time`, like 10m, with status 121; off: never")
	f.BoolVar(&o.Hang.RAS, "ras", false, "when the job seems to stand still, ask NCCL's RAS about it (its port on this machine and the first other node, on loopback)")
	f.DurationVar(&o.Spread.Grace, "grace", 0, "after INT, TERM or HUP end what is left when this `time` is over, like 90s; 0 waits for the launcher")
}

// wayFlags say how other hosts are reached.
func wayFlags(f *pflag.FlagSet, o *look.Ways) {
	f.StringVar(&o.Transport, "remote", "auto", "how other hosts are reached: auto, native (own ssh), ssh, srun, none")
	f.StringVar(&o.SSHUser, "ssh-user", "", "log in as this `user`")
	f.IntVar(&o.SSHPort, "ssh-port", 0, "ssh `port` of the hosts")
	f.StringVar(&o.SSHKey, "ssh-key", "", "private key `file`")
	f.StringVar(&o.SSHConfig, "ssh-config", "", "ssh configuration `file` instead of the usual ones")
	f.StringVar(&o.KnownHosts, "known-hosts", "", "known_hosts `file` instead of the usual ones")
	f.BoolVar(&o.Insecure, "insecure-host-keys", false, "do not check host keys")
}

// hangTime is after how long a standstill counts; 0 is never.
type hangTime time.Duration

func (t *hangTime) Set(text string) error {
	switch strings.ToLower(text) {
	case "off", "no", "false", "0":
		*t = 0
		return nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < eyes.LeastHang {
		err = fmt.Errorf("less than %v, in which the ranks can be looked at a few times", eyes.LeastHang)
	}
	*t = hangTime(d)
	return err
}

func (t *hangTime) String() string {
	if *t == 0 {
		return "off"
	}
	return time.Duration(*t).String()
}

func (t *hangTime) Type() string { return "duration" }
