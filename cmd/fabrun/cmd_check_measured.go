package main

import (
	"fmt"
	"io"
	"os"

	"fabrun/launcher/exit"
	"fabrun/launcher/measure"
	"fabrun/launcher/report"
	"fabrun/profiles"
	"fabrun/topology/finding"
	"fabrun/topology/pasted"
)

// notThis is a text that is not what its flag says.
func notThis(flag string, err error) error {
	return exit.WithHint(fmt.Errorf("--%s: %w", flag, err), "paste the whole output of the program, from its first line")
}

func checkPerftest(a *app, _ checkOptions, text string) ([]finding.Finding, error) {
	prof, err := a.FabricProfile()
	if err != nil {
		return nil, err
	}
	p, err := pasted.ReadPerftest(text)
	if err != nil {
		return nil, notThis("perftest", err)
	}
	v, fs := measure.JudgePerftest(p, measure.ExpectOf(prof))
	if a.JSON {
		return fs, report.PerftestJSON(a.Stdout, p, v, fs)
	}
	return fs, report.Perftest(a.Stdout, p, v, fs)
}

func checkNCCLTests(a *app, o checkOptions, text string) ([]finding.Finding, error) {
	prof, err := a.FabricProfile()
	if err != nil {
		return nil, err
	}
	n, err := pasted.ReadNCCLTests(text)
	if err != nil {
		return nil, notThis("nccl-tests", err)
	}
	rails := 0.0
	if prof != nil && prof.Fabric.RateGbps != nil && o.rails > 0 {
		rails = float64(o.rails) * *prof.Fabric.RateGbps
	}
	v, fs := measure.JudgeNCCLTests(n, rails, nil)
	if a.JSON {
		return fs, report.NCCLTestsJSON(a.Stdout, n, v, fs)
	}
	return fs, report.NCCLTests(a.Stdout, n, v, fs)
}

func checkOSU(a *app, _ checkOptions, text string) ([]finding.Finding, error) {
	prof, err := a.FabricProfile()
	if err != nil {
		return nil, err
	}
	o, err := pasted.ReadOSU(text)
	if err != nil {
		return nil, notThis("osu", err)
	}
	v, fs := measure.JudgeOSU(o, measure.ExpectOf(prof))
	if a.JSON {
		return fs, report.OSUJSON(a.Stdout, o, v, fs)
	}
	return fs, report.OSU(a.Stdout, o, v, fs)
}

// checkPcap reads the capture as it comes: captures are larger than memory.
func checkPcap(a *app, o checkOptions) ([]finding.Finding, error) {
	prof, err := a.FabricProfile()
	if err != nil {
		return nil, err
	}
	var r io.Reader = a.Stdin
	if o.pcap != "-" {
		f, err := os.Open(o.pcap)
		if err != nil {
			return nil, exit.WithHint(fmt.Errorf("--pcap: %w", err), "it wants a file, or - for standard input")
		}
		defer f.Close()
		r = f
	}
	c, err := pasted.ReadPcap(r)
	if err != nil {
		return nil, exit.WithHint(fmt.Errorf("--pcap: read %q: %w", o.pcap, err), "'tcpdump -i mlx5_0 -w FILE udp port 4791' writes one")
	}
	var q *profiles.QoS
	if prof != nil {
		q = prof.Fabric.QoS
	}
	v, fs := measure.JudgePcap(c, q)
	if a.JSON {
		return fs, report.CaptureJSON(a.Stdout, c, v, fs)
	}
	return fs, report.Capture(a.Stdout, c, v, fs)
}
