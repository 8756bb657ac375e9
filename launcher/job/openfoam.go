package job

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/openfoam"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// foamWorkload is the name of OpenFOAM's workload profile.
const foamWorkload = "openfoam"

// foamCase reads what a launch needs of the case that a program runs in. What
// cannot be read is absent from the Case; what cannot be understood is a finding.
func foamCase(program []string) (openfoam.Case, []finding.Finding) {
	args := openfoam.ReadArguments(program)
	c := openfoam.Case{Dir: "."}
	if args.Case != "" {
		c.Dir = args.Case
	}
	var finds []finding.Finding
	read := func(path string, parse func([]byte) error) {
		text, err := files.Read(path)
		if err == nil {
			err = parse(text)
		}
		if err == nil || os.IsNotExist(err) {
			return
		}
		finds = append(finds, finding.Finding{
			ID: "openfoam.dictionary", Severity: finding.Warning, Subject: path,
			Seen: err.Error(), Wanted: "an OpenFOAM dictionary", Why: "the case cannot be compared with the launch",
			Hint: "foamDictionary " + path + " shows what OpenFOAM reads",
		})
	}
	c.DictPath = filepath.Join(c.Dir, "system", args.Region, "decomposeParDict")
	if args.Dict != "" {
		// Relative names are looked for in the case (OpenFOAM's -decomposeParDict).
		if c.DictPath = args.Dict; !filepath.IsAbs(args.Dict) {
			c.DictPath = filepath.Join(c.Dir, args.Dict)
		}
	}
	read(c.DictPath, func(text []byte) error {
		d, err := openfoam.ReadDecomposition(text)
		if err == nil {
			c.Decomposition = &d
		}
		return err
	})
	read(filepath.Join(c.Dir, "system", "controlDict"), func(text []byte) error {
		d, err := openfoam.ReadControl(text)
		if err == nil {
			c.Control = &d
		}
		return err
	})
	if entries, err := os.ReadDir(c.Dir); err == nil {
		names := make([]string, len(entries))
		for i, e := range entries {
			names[i] = e.Name()
		}
		p := openfoam.CountProcessors(names)
		p.Times = foamResults(c.Dir, names)
		c.Processors = &p
	}
	return c, finds
}

// foamResults is the last time directory in the first part of a case that is
// there; "" none. Ranks write the same times, so one part tells for all.
func foamResults(dir string, names []string) string {
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, "processor"); !ok || strings.Trim(rest, "s0123456789_-") != "" {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		var times []string
		for _, e := range entries {
			if e.IsDir() {
				times = append(times, e.Name())
			}
		}
		if last := openfoam.Results(times); last != "" {
			return filepath.Join(name, last)
		}
		return ""
	}
	return ""
}

// foamArgv puts mpirun in front of an OpenFOAM program that was given without
// one and wants to run in parallel: with --workload openfoam the case says how
// many ranks that takes.
func (a *Call) foamArgv(argv []string) (out []string, note string, err error) {
	if a.Workload != foamWorkload || a.From != "" || !openfoam.ReadArguments(argv).Parallel ||
		!cmdline.Identify(argv, "", "").Dialect.Alone {
		return argv, "", nil
	}
	c, finds := foamCase(argv)
	if c.Decomposition == nil || c.Decomposition.Subdomains == nil {
		why := "there is no numberOfSubdomains"
		switch {
		case len(finds) > 0:
			why = finds[0].Seen
		case c.Decomposition == nil:
			why = "no such file"
		case c.Decomposition.Why != "":
			why = c.Decomposition.Why
		}
		return nil, "", &exit.Error{Code: exit.NoPlan, Err: fmt.Errorf("how many ranks? %s: %s", c.DictPath, why), Hint: "run from the case directory, or say it: mpirun -np N " + strings.Join(argv, " ")}
	}
	n := strconv.Itoa(*c.Decomposition.Subdomains)
	note = fmt.Sprintf("'mpirun -np %s' was put in front of %s: numberOfSubdomains in %s", n, openfoam.Program(argv), c.DictPath)
	return append([]string{"mpirun", "-np", n}, argv...), note, nil
}

// judgeFoam compares the case, the launch and their environment. Where the
// command line does not say how many ranks there are, the case does.
func (a *Call) judgeFoam(cmd cmdline.Command, h topology.Host) (finds []finding.Finding, np *int) {
	program := cmd.Program()
	c, finds := foamCase(program)
	if cmd.Ranks() == nil && cmd.TakesNP() && openfoam.ReadArguments(program).Parallel && c.Decomposition != nil {
		np = c.Decomposition.Subdomains
	}
	r := openfoam.Run{Program: program, Launcher: cmd.Launcher.Dialect.MPI, Env: map[string]string{}}
	if n := cmp.Or(cmd.Ranks(), np); n != nil {
		r.NP = *n
	}
	for _, kv := range a.Env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			r.Env[name] = value
		}
	}
	for _, s := range h.Software {
		switch s.Kind {
		case "ucx":
			if r.UCX == "" {
				r.UCX = s.Version
			}
		case "hcoll":
			there := true
			r.Hcoll = &there
		}
	}
	return slices.Concat(finds, openfoam.Examine(c, r).Findings), np
}
