package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/report"
)

type reportOptions struct {
	html      string
	against   string
	tolerance float64
}

func newReportCmd(a *app) *cobra.Command {
	var o reportOptions
	c := &cobra.Command{
		Use:   "report FILE",
		Short: "Show a recorded job: what carried its data, and why",
		Long: `Show a job that 'fabrun run --record FILE' recorded: the verdict, what each host
moved by RDMA and TCP, rails, findings, events, and every variable with its
reason; as text, as one offline HTML page, or as JSON. --against compares it
with an earlier record of the same command, as after an upgrade. What Slurm's
epilog left of a job on a node (jobs/ID.json) is shown too, as text or JSON.

Exit status: 0; 1 when the file cannot be read, or when --against shows that it
became worse; 2 for a wrong call.`,
		Example: `  fabrun run --record job.rec -- mpirun -np 96 simpleFoam -parallel
  fabrun report job.rec --html job.html
  fabrun report new.rec --against old.rec --tolerance 0.08`,
		Args: takes(1, 1),
		RunE: func(_ *cobra.Command, args []string) error { return runReport(a, o, args[0]) },
	}
	c.Flags().StringVar(&o.html, "html", "", "write one HTML page to this `file` ('-': standard output)")
	c.Flags().StringVar(&o.against, "against", "", "compare with the earlier record in this `file`")
	c.Flags().Float64Var(&o.tolerance, "tolerance", 0.08, "differences of time up to this `fraction` are none")
	return c
}

func runReport(a *app, o reportOptions, name string) error {
	if o.tolerance < 0 || o.tolerance > 10 {
		return exit.UsageError(fmt.Errorf("--tolerance %v: want a fraction such as 0.08", o.tolerance), "")
	}
	if job, ok := readNodeJob(name); ok {
		if o.html != "" || o.against != "" {
			return exit.UsageError(fmt.Errorf("%s is what an epilog left of a job on one node: it has no page and is not compared", name), "as text, or --json")
		}
		if !a.JSON {
			return report.NodeJobText(a.Stdout, job)
		}
		return report.NodeJobJSON(a.Stdout, job)
	}
	rec, err := readRecord(name)
	if err != nil {
		return err
	}
	var cmp *report.Comparison
	if o.against != "" {
		old, err := readRecord(o.against)
		if err != nil {
			return err
		}
		c := report.Compare(old, rec, o.tolerance)
		cmp = &c
	}
	if err := a.showRecord(o, rec, cmp); err != nil {
		return err
	}
	if cmp != nil && cmp.Worse {
		return exit.ErrFindings
	}
	return nil
}

func (a *app) showRecord(o reportOptions, rec report.Record, cmp *report.Comparison) error {
	switch {
	case o.html == "-":
		return report.RecordedHTML(a.Stdout, rec, cmp)
	case o.html != "":
		return writePage(o.html, rec, cmp)
	case a.JSON:
		return report.RecordedJSON(a.Stdout, rec, cmp)
	case cmp != nil:
		return report.Compared(a.Stdout, *cmp)
	}
	return report.Recorded(a.Stdout, rec)
}

// readNodeJob reads what a Slurm epilog left; false where the file is something else.
func readNodeJob(name string) (job report.NodeJob, ok bool) {
	text, err := files.Read(name)
	return job, err == nil && json.Unmarshal(text, &job) == nil && job.Schema == report.SchemaNodeJob
}

func readRecord(name string) (report.Record, error) {
	f, err := os.Open(name)
	if err != nil {
		return report.Record{}, exit.WithHint(fmt.Errorf("read record: %w", err), "make one with 'fabrun run --record FILE -- CMD'")
	}
	//nolint:errcheck // opened for reading
	defer f.Close()
	rec, err := report.ReadRecord(f)
	if err != nil {
		return rec, exit.WithHint(fmt.Errorf("read record %q: %w", name, err), "make one with 'fabrun run --record FILE -- CMD'")
	}
	return rec, nil
}

// writePage writes the page so that nobody sees half of it.
func writePage(name string, rec report.Record, cmp *report.Comparison) error {
	var b bytes.Buffer
	if err := report.RecordedHTML(&b, rec, cmp); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	if err := files.Write(name, b.Bytes(), files.Private); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}
