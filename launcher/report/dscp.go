package report

import (
	"io"

	"fabrun/envgen"
)

// ecnWords are the two ECN bits of the traffic class byte.
var ecnWords = [4]string{"not ECN capable", "ECT(1)", "ECT(0): what RoCE uses", "CE: set by switches"}

// DSCP writes a marking for people.
func DSCP(w io.Writer, m envgen.Marking) error {
	t := &text{w: w}
	t.printf("DSCP %d", m.DSCP)
	if m.Name != "" {
		t.printf(" (%s)", m.Name)
	}
	t.printf(": priority %d by the network cards' default map\n\n", m.Priority)
	t.printf("  traffic class (ToS)\n")
	for ecn, words := range ecnWords {
		t.printf("    %3d  0x%02x  ECN %d  %s\n", m.TC(ecn), m.TC(ecn), ecn, words)
	}
	t.printf("\n  as variables and options\n")
	for _, v := range m.Vars {
		sep := "="
		if v.Name[0] < 'A' || v.Name[0] > 'Z' {
			sep = " "
		}
		t.printf("    %-9s %s%s%s\n", v.For, v.Name, sep, v.Value)
	}
	return t.err
}

type dscpJSON struct {
	Schema   string    `json:"schema"`
	DSCP     int       `json:"dscp"`
	Name     *string   `json:"name"`
	Priority int       `json:"default_priority"`
	Classes  []tcJSON  `json:"traffic_classes"`
	Vars     []markVar `json:"vars"`
}

type tcJSON struct {
	ECN int `json:"ecn"`
	TC  int `json:"tc"`
}

type markVar struct {
	For   string `json:"for"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// DSCPJSON writes schema fabrun/dscp/v1.
func DSCPJSON(w io.Writer, m envgen.Marking) error {
	out := dscpJSON{Schema: "fabrun/dscp/v1", DSCP: m.DSCP, Name: known(m.Name), Priority: m.Priority}
	for ecn := range ecnWords {
		out.Classes = append(out.Classes, tcJSON{ecn, m.TC(ecn)})
	}
	for _, v := range m.Vars {
		out.Vars = append(out.Vars, markVar(v))
	}
	return writeJSON(w, out)
}
