package qosconf

import "strings"

// Dialect is the language of one switch operating system: what it prints and
// how that is read, and how a plan is written in it.
type Dialect struct {
	ID      string // "eos", as JSON names it
	Name    string // for people
	outputs []output
	// write is the plan as configuration; nil where fabrun cannot write it.
	write func(p Plan, o SwitchOptions) ([]string, error)
	// word is how `profile show --switch` calls it.
	word string
}

// Switches is the explicit list of dialects.
var Switches = []Dialect{eos, onyx, nvue, sonic, nxos, junos}

// Known is what can be read, for a message: each dialect with its commands.
func Known() string {
	var all []string
	for _, d := range Switches {
		var shows []string
		for _, o := range d.outputs {
			shows = append(shows, "'"+o.show+"'")
		}
		all = append(all, d.Name+": "+strings.Join(shows, ", "))
	}
	return strings.Join(all, "; ")
}
