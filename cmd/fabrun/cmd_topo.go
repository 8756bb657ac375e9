package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/job"
	"fabrun/launcher/report"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/discover"
	"fabrun/topology/finding"
	"fabrun/topology/live"
)

type topoOptions struct {
	svg      string
	ncclXML  bool
	validate string
	matrix   string
}

func newTopoCmd(a *app) *cobra.Command {
	var o topoOptions
	cmd := &cobra.Command{
		Use:   "topo",
		Short: "Show GPUs, HCAs and how far they are from each other",
		Long: `Show NUMA nodes, PCIe switches, GPUs and HCAs of this host as a tree, and how
far each GPU is from each HCA as a matrix, and say what is good and what is not.

Distances are NCCL's (PIX, PXB, PHB, SYS), with NODE where nvidia-smi topo -m
shows it; --json has both, with the PCI addresses on the way. A virtual machine
that hides its PCIe switches is said to, and no distance is made up. With -v, as
in 'fabrun check', ghw and rdmamap are asked what they see, too.

--validate compares a topology file meant for NCCL_TOPO_FILE with the machine;
--matrix judges the output of nvidia-smi topo -m from another machine.

Exit status: 0 shown; 1 findings of severity error (a topology file that NCCL
would not take, or that is not this machine's), or it could not be shown;
2 usage.`,
		Example: `  fabrun topo
  fabrun topo --from node1.snap --svg node1.svg
  fabrun topo --nccl-xml > topo.xml
  fabrun topo --validate /etc/nccl/topo.xml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTopo(cmd.Context(), a, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.svg, "svg", "", "draw the picture into this `file` (- for standard output)")
	f.BoolVar(&o.ncclXML, "nccl-xml", false, "write the host as an NCCL topology XML")
	f.StringVar(&o.validate, "validate", "", "compare this NCCL topology `file` with the machine")
	f.StringVar(&o.matrix, "matrix", "", "judge this pasted output of nvidia-smi topo -m (`file`, - for standard input)")
	cmd.MarkFlagsMutuallyExclusive("svg", "nccl-xml", "validate", "matrix")
	return cmd
}

func runTopo(ctx context.Context, a *app, o topoOptions) error {
	if o.matrix != "" {
		return runTopoMatrix(a, o.matrix)
	}
	h, found, err := a.Look(ctx, live.Options{Helper: a.Helper(), Opinions: a.Verbose})
	if err != nil {
		return err
	}
	if o.validate != "" {
		return validateXML(a, h, o.validate)
	}
	paths := topology.Paths(h)
	found = slices.Concat(found, topology.Judge(h, paths))
	switch {
	case o.ncclXML:
		err = discover.WriteXML(a.Stdout, h)
	case o.svg == "-":
		err = a.drawTopo(a.Stdout, h, paths)
	case o.svg != "":
		var b bytes.Buffer
		if err = a.drawTopo(&b, h, paths); err == nil {
			err = files.Write(o.svg, b.Bytes(), files.Shared)
		}
	case a.JSON:
		err = report.TopoJSON(a.Stdout, h, paths, found)
	case a.Quiet:
		_, err = fmt.Fprintln(a.Stdout, report.TopoSentence(h, paths))
	default:
		err = report.Topo(a.Stdout, h, paths, found)
	}
	return orFindings(err, found)
}

// drawTopo draws a host, and greys what a job of this profile would not use.
func (a *app) drawTopo(w io.Writer, h topology.Host, paths []topology.Path) error {
	prof, err := a.FabricProfile()
	if err != nil {
		return err
	}
	if prof == nil {
		prof = &profiles.Profile{}
	}
	var used []string
	for _, r := range job.RailsOf([]topology.Host{h}, *prof) {
		for _, port := range r.Ports {
			name, _, _ := strings.Cut(port, ":")
			used = append(used, name)
		}
	}
	return report.TopoSVG(w, h, paths, used)
}

// orFindings ends a verb with what went wrong, else with its findings.
func orFindings(err error, found []finding.Finding) error {
	if worst, ok := finding.Worst(found); err == nil && ok && worst == finding.Error {
		return exit.ErrFindings
	}
	return err
}

func validateXML(a *app, h topology.Host, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("--validate: %w", err)
	}
	defer f.Close()
	x, found, err := discover.ReadXML(f)
	if err != nil {
		return fmt.Errorf("read %q: %w", name, err)
	}
	found = append(found, discover.ValidateXML(h, x)...)
	if a.JSON {
		err = report.ValidationJSON(a.Stdout, name, found)
	} else {
		err = report.Validation(a.Stdout, name, a.Called(), found)
	}
	return orFindings(err, found)
}
