package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"fabrun/launcher/watch"
)

// SchemaNodeJob names what Slurm's prolog and epilog leave of a job on a node.
const SchemaNodeJob = "fabrun/slurm-job/v1"

// NodeJob is what one node's ports did while a job ran there. Where the epilog
// has not run, Ended and Traffic are nil.
type NodeJob struct {
	Schema  string             `json:"schema"`
	Job     string             `json:"job_id"`
	Started time.Time          `json:"started"`
	Ended   *time.Time         `json:"ended"`
	First   watch.Sample       `json:"first"`
	Traffic *watch.HostTraffic `json:"traffic"`
	Events  []watch.Event      `json:"events"`
}

// NodeJobText writes it for a person. It says nothing of the job's other nodes.
func NodeJobText(w io.Writer, j NodeJob) error {
	var b strings.Builder
	if j.Traffic == nil {
		fmt.Fprintf(&b, "Job %s on %s: the epilog has not run.\n\n", j.Job, j.First.Host)
	} else {
		fmt.Fprintf(&b, "Job %s on %s: RDMA carried %s there, TCP %s, whoever sent it.\n\n", j.Job, j.First.Host, rdmaWord(*j.Traffic), bytesWord(allTCP(*j.Traffic)))
	}
	fmt.Fprintf(&b, "  %-10s %s\n", "began", j.Started.Local().Format("2006-01-02 15:04:05"))
	if j.Ended != nil {
		fmt.Fprintf(&b, "  %-10s %s, after %s\n", "ended", j.Ended.Local().Format("15:04:05"), duration(j.Ended.Sub(j.Started).Seconds()))
	}
	if j.Traffic != nil {
		for _, p := range j.Traffic.Ports {
			if words := counterWords(p.Delta); words != "" {
				fmt.Fprintf(&b, "  %-10s %s\n", fmt.Sprintf("%s:%d", p.HCA, p.Port), words)
			}
		}
	}
	for _, e := range j.Events {
		b.WriteString("  " + EventLine(e) + "\n")
	}
	_, err := io.WriteString(w, Printable(b.String()))
	return err
}

// allTCP is what TCP carried, to and from whomever; nil not known.
func allTCP(t watch.HostTraffic) *uint64 {
	if t.TCPBytes == nil && t.OtherTCP == nil {
		return nil
	}
	var sum uint64
	for _, n := range []*uint64{t.TCPBytes, t.OtherTCP} {
		if n != nil {
			sum += *n
		}
	}
	return &sum
}
