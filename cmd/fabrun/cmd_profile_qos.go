package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"fabrun/launcher/exit"
	"fabrun/launcher/report"
	"fabrun/profiles"
	"fabrun/profiles/qosconf"
	"fabrun/topology/finding"
)

// qosForm is the form that 'profile show' prints a QoS plan in; the zero value
// is none: the profile itself.
type qosForm struct {
	host    bool
	dialect string
	ports   string
	targets []string
	maxVFs  []int
	device  string
}

func (q *qosForm) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&q.host, "host", false, "print the commands that put the QoS plan on a host; nothing is run")
	f.StringSliceVar(&q.targets, "interface", nil, "with --host: write them for this `netdev[:hca]` (again for more)")
	f.StringVar(&q.dialect, "switch", "", "print the QoS plan as configuration: `kind` is "+strings.Join(qosconf.Dialects(), ", "))
	f.StringVar(&q.ports, "ports", "", "with --switch: the ports, for example 1/1-3/4")
	f.IntSliceVar(&q.maxVFs, "max-vfs", nil, "with --switch esxi: virtual functions per port, for example 8,8")
	f.StringVar(&q.device, "device", "", "with --switch esxi: the mst `device`")
}

func (q *qosForm) asked() bool { return q.host || q.dialect != "" }

func runProfileQoS(a *app, name string, q qosForm) error {
	if q.host && q.dialect != "" {
		return exit.UsageError(errors.New("--host and --switch are two forms: give one"), "")
	}
	p, err := profiles.Load(a.ProfileDirs(), name)
	if err != nil {
		return profileError(err)
	}
	plan, err := qosconf.FromProfile(p)
	if err != nil {
		return exit.WithHint(err, "'fabrun profile list' names profiles; roce-dscp26 has a plan")
	}
	form, lines := "host", []string(nil)
	if q.host {
		targets, err := hostTargets(q.targets)
		if err != nil {
			return exit.UsageError(err, "--interface ens1f0np0:mlx5_0")
		}
		lines = plan.Host(targets)
	} else {
		form = q.dialect
		lines, err = plan.Switch(q.dialect, qosconf.SwitchOptions{Ports: q.ports, MaxVFs: q.maxVFs, Device: q.device})
		if err != nil {
			return exit.UsageError(err, "for example --switch arista --ports 1/1-3/4")
		}
	}
	if a.JSON {
		return report.QoSConfigJSON(a.Stdout, p.Name, form, lines)
	}
	return report.QoSConfig(a.Stdout, lines)
}

// hostTargets reads "ens1f0np0:mlx5_0"; without the device it stays to be filled in.
func hostTargets(words []string) ([]qosconf.Target, error) {
	var out []qosconf.Target
	for _, w := range words {
		netdev, hca, ok := strings.Cut(w, ":")
		if netdev == "" || ok && hca == "" {
			return nil, fmt.Errorf("--interface %q: wanted netdev or netdev:hca", w)
		}
		if hca == "" {
			hca = "$HCA"
		}
		out = append(out, qosconf.Target{Netdev: netdev, HCA: hca})
	}
	return out, nil
}

// checkSwitch is check --switch-output: what a switch printed, against the
// profile where one is named.
func checkSwitch(a *app, _ checkOptions, text string) ([]finding.Finding, error) {
	p, err := a.FabricProfile()
	if err != nil {
		return nil, err
	}
	var plan *qosconf.Plan
	if p != nil {
		made, err := qosconf.FromProfile(*p)
		if err != nil {
			return nil, exit.UsageError(err, "name a RoCE profile, or none: then links and speeds alone are judged")
		}
		plan = &made
	}
	sw := qosconf.ReadSwitch(text)
	c := qosconf.Compare(sw, plan)
	if a.JSON {
		return c.Findings, report.SwitchJSON(a.Stdout, sw, plan, c)
	}
	return c.Findings, report.Switch(a.Stdout, sw, plan, c)
}
