package report

import (
	"fmt"
	"io"

	"fabrun/topology/finding"
)

// Validation says whether a topology file is the machine's.
func Validation(w io.Writer, file, machine string, found []finding.Finding) error {
	t := &text{w: w}
	t.wrap("", ValidationSentence(file, machine, found))
	if t.err == nil && len(found) > 0 {
		t.err = Findings(w, found)
	}
	return t.err
}

// ValidationSentence is the verdict on a topology file.
func ValidationSentence(file, machine string, found []finding.Finding) string {
	switch worst, _ := finding.Worst(found); worst {
	case finding.Error:
		return fmt.Sprintf("refused: %s does not describe %s", file, machine)
	case finding.Warning:
		return fmt.Sprintf("%s describes %s, with differences", file, machine)
	}
	return fmt.Sprintf("good: %s describes %s", file, machine)
}

type validationJSON struct {
	Schema   string            `json:"schema"`
	File     string            `json:"file"`
	Matches  bool              `json:"matches"`
	Findings []finding.Finding `json:"findings"`
}

// ValidationJSON writes schema fabrun/topo-validation/v1.
func ValidationJSON(w io.Writer, file string, found []finding.Finding) error {
	worst, _ := finding.Worst(found)
	return writeJSON(w, validationJSON{"fabrun/topo-validation/v1", file, worst != finding.Error, list(sorted(found))})
}
