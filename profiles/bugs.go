package profiles

import (
	_ "embed" // bugs.toml
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

//go:embed bugs.toml
var bugsTOML string

// Bug is one known bug of a library's versions that bites jobs on a fabric, with
// where it is told. It is advice: nothing is refused for it.
type Bug struct {
	ID      string  `toml:"id"`
	Library string  `toml:"library"`  // "nccl", "rccl", "ucx", "openmpi", "aws-ofi-nccl"
	From    string  `toml:"from"`     // first version that has it; "" all before
	Last    string  `toml:"last"`     // last one known to have it; "" not told
	FixedIn string  `toml:"fixed_in"` // first one without it; "" none known
	When    BugWhen `toml:"when"`
	Effect  string  `toml:"effect"` // what happens
	Advice  string  `toml:"advice"` // what to do
	Source  string  `toml:"source"` // a URL
}

// BugWhen is what must be so on a host of the job; a field that is not set asks
// nothing.
type BugWhen struct {
	LinkLayer  string `toml:"link_layer"`  // "ethernet", "infiniband": of a port that the job uses
	Driver     string `toml:"driver"`      // of such a port's device
	Arch       string `toml:"arch"`        // "arm64", "x86_64"
	KernelFrom string `toml:"kernel_from"` // a version
	Set        string `toml:"set"`         // "NAME" or "NAME=VALUE" in the ranks' environment
	MinRails   int    `toml:"min_rails"`   // ports that the job uses on a host
	GPU        bool   `toml:"gpu"`
	Bond       bool   `toml:"bond"` // such a port is a bond
	Container  bool   `toml:"container"`
}

// Bugs are the known bugs, in the order of their file.
func Bugs() ([]Bug, error) { return BugsOf(func(Bug) bool { return true }) }

// BugsOf are those whose library and versions may be asked for: of every entry
// these alone are looked at, and the rest is parsed where may says so. To parse
// all of them costs more than to decide a plan.
func BugsOf(may func(Bug) bool) ([]Bug, error) {
	var bugs []Bug
	_, entries, _ := strings.Cut(bugsTOML, bugHead)
	for entry := range strings.SplitSeq(entries, bugHead) {
		if b := bugVersions(entry); !may(b) {
			continue
		}
		var b Bug
		md, err := toml.Decode(entry, &b)
		if err != nil {
			return nil, fmt.Errorf("read bugs.toml: %w", err)
		}
		if extra := md.Undecoded(); len(extra) > 0 {
			return nil, fmt.Errorf("read bugs.toml: unknown key %q", extra[0])
		}
		bugs = append(bugs, b)
	}
	return bugs, nil
}

const bugHead = "[[bug]]\n"

// bugVersions reads the lines of an entry that hold one plain word.
func bugVersions(entry string) (b Bug) {
	for line := range strings.Lines(entry) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " = ")
		value = strings.Trim(value, `"`)
		switch key {
		case "library":
			b.Library = value
		case "from":
			b.From = value
		case "last":
			b.Last = value
		case "fixed_in":
			b.FixedIn = value
		}
	}
	return b
}
