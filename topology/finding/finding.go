package finding

import (
	"cmp"
	"slices"
)

// Severity says what a Finding means for the job.
type Severity string

// The severities, worst first.
const (
	Error   Severity = "error"   // the job would not use the fabric as planned, or not run
	Warning Severity = "warning" // it runs, but slower or less safely than it could
	Note    Severity = "note"    // worth knowing; nothing to do for this job
)

func (s Severity) rank() int {
	switch s {
	case Error:
		return 0
	case Warning:
		return 1
	default:
		return 2
	}
}

// Finding is one observation that somebody should know about. Its JSON is an
// interface (docs/json.md): fields are added, never renamed.
type Finding struct {
	ID       string   `json:"id"`       // stable, dotted, lower case: "hca.port-down"
	Severity Severity `json:"severity"` // error, warning or note
	Host     string   `json:"host"`     // "" when it is about no single host
	Subject  string   `json:"subject"`  // what it is about: "mlx5_1 port 1", "NCCL_IB_TC", "job.sh:12"
	Seen     string   `json:"seen"`     // what was read, and where
	Wanted   string   `json:"wanted"`   // what would have been right
	Why      string   `json:"why"`      // the consequence for the job, one sentence
	Hint     string   `json:"hint"`     // what to do; can be pasted where it is a command
}

// Worst returns the most severe severity in fs and false when fs is empty.
func Worst(fs []Finding) (Severity, bool) {
	if len(fs) == 0 {
		return "", false
	}
	worst := fs[0].Severity
	for _, f := range fs[1:] {
		if f.Severity.rank() < worst.rank() {
			worst = f.Severity
		}
	}
	return worst, true
}

// Sort orders fs worst first, then by host, ID, subject and what was seen, so
// that the same findings always print as the same bytes.
func Sort(fs []Finding) {
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Severity.rank(), b.Severity.rank()),
			cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Subject, b.Subject),
			cmp.Compare(a.Seen, b.Seen),
		)
	})
}
