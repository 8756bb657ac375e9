package plan

import (
	"slices"
	"strings"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
)

// nodeOwn is a row of the table of variables that each node keeps as its own:
// they name a machine, a login or a session, and mean nothing elsewhere.
type nodeOwn struct {
	names string // words; "NAME*" is every name that begins so
	why   string
	// of says whether a value is of this kind; nil: every value is.
	of func(value string) bool
}

// nodeOwns is the list, beside the variables of resource managers' tasks: of what the user's environment holds, everything
// else goes to every node. docs/environment.md is made from it. Sources: ssh(1),
// tmux(1), screen(1), systemd.exec(5), pam_systemd(8), the XDG base directories,
// NVIDIA's and AMD's
// documentation of *_VISIBLE_DEVICES, ld.so(8).
var nodeOwns = []nodeOwn{
	{names: "HOSTNAME HOST", why: "the machine's name"},
	{names: "SSH_* KRB5CCNAME GPG_AGENT_INFO GPG_TTY", why: "a login's connection and credentials"},
	{names: "DISPLAY XAUTHORITY WAYLAND_DISPLAY WAYLAND_SOCKET SESSION_MANAGER DBUS_* ICEAUTHORITY", why: "a desktop session"},
	{names: "XDG_RUNTIME_DIR XDG_SESSION_* XDG_SEAT XDG_VTNR", why: "a login session"},
	{names: "TMUX TMUX_PANE STY WINDOW WINDOWID TERM_PROGRAM* TERM_SESSION_ID WT_SESSION VSCODE_*", why: "a terminal's session"},
	{names: "INVOCATION_ID JOURNAL_STREAM NOTIFY_SOCKET LISTEN_* WATCHDOG_* MANAGERPID SYSTEMD_EXEC_PID CREDENTIALS_DIRECTORY", why: "a service of one machine"},
	{names: "LD_PRELOAD LD_AUDIT", why: "libraries of one machine"},
	{names: strings.Join(deviceLists, " "), why: "GPUs of one machine, by their serial identifiers", of: func(v string) bool {
		return strings.Contains(v, "GPU-") || strings.Contains(v, "MIG-")
	}},
}

// allNodeOwns is nodeOwns with what resource managers say of a node or a task.
func allNodeOwns() []nodeOwn {
	out := slices.Clone(nodeOwns)
	for _, s := range hosts.Schedulers {
		if s.TaskVars != "" {
			out = append(out, nodeOwn{names: s.TaskVars, why: "a node or a task of " + s.Title})
		}
	}
	return out
}

// stepOf is the kind of step in which an environment's process runs; nil none.
func stepOf(env []string) *hosts.Step {
	for _, s := range hosts.Schedulers {
		if s.Step != nil && cmdline.Value(env, s.Step.ID) != "" {
			return s.Step
		}
	}
	return nil
}

// deviceLists say which of a machine's GPUs a program sees. A resource manager
// sets them anew for each step.
var deviceLists = []string{"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"}

// accountNames describe the account, which may be another one there.
var accountNames = []string{"HOME", "USER", "LOGNAME", "MAIL", "SHELL"}

// NodeKeeps is the table for people: names, and what they name.
func NodeKeeps() [][2]string {
	var out [][2]string
	for _, row := range allNodeOwns() {
		out = append(out, [2]string{row.names, row.why})
	}
	out = append(out, [2]string{strings.Join(accountNames, " "), "where the login there is another user's"})
	for _, s := range hosts.Schedulers {
		if s.Step != nil {
			out = append(out, [2]string{s.Step.Prefix + "* " + strings.Join(deviceLists, " "), "in a step of " + s.Title + ": as " + s.Title + " sets them for it"})
		}
	}
	return append(out, [2]string{"TMPDIR", "where the directory is not there"})
}

// Withheld is a variable of the user's that each node keeps as its own.
type Withheld struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Carry says what of the user's environment goes to the nodes against the table.
type Carry struct {
	Take  []string // names that go all the same, "NAME*" for a beginning
	Leave []string // names that do not
}

// Bad is the first that is neither a name nor a beginning of names.
func (c Carry) Bad() (name string, bad bool) {
	for _, p := range slices.Concat(c.Take, c.Leave) {
		if strings.ContainsAny(p, "=\x00") || strings.Trim(p, "*") == "" || strings.Contains(strings.TrimSuffix(p, "*"), "*") {
			return p, true
		}
	}
	return "", false
}

// matchesName reports whether a name is one of these, or begins like one.
func matchesName(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		stem, open := strings.CutSuffix(p, "*")
		return name == p || open && strings.HasPrefix(name, stem)
	})
}

// keeps says why each node keeps this variable as its own; "" it does not.
func (c Carry) keeps(name, value string) string {
	switch {
	case matchesName(name, c.Take):
		return ""
	case matchesName(name, c.Leave):
		return "--no-env"
	}
	for _, row := range allNodeOwns() {
		if matchesName(name, strings.Fields(row.names)) && (row.of == nil || row.of(value)) {
			return row.why
		}
	}
	return ""
}

// HandOver divides an environment into what goes to the nodes, as it is, and what
// each of them keeps as its own.
func (c Carry) HandOver(env []string) (sent []string, withheld []Withheld) {
	for _, kv := range env {
		name, v, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if why := c.keeps(name, v); why != "" {
			withheld = append(withheld, Withheld{name, why})
			continue
		}
		sent = append(sent, kv)
	}
	slices.SortFunc(withheld, func(a, b Withheld) int { return strings.Compare(a.Name, b.Name) })
	return sent, slices.Compact(withheld)
}

// OnNode is the environment on a node: what was sent, and of the node's own what
// it keeps. isDir says whether a directory is there.
func (c Carry) OnNode(sent, own []string, isDir func(string) bool) []string {
	out := slices.Clone(sent)
	step := stepOf(own)
	user := cmdline.Value(own, "USER")
	stranger := user != "" && user != cmdline.Value(sent, "USER")
	replace := func(name, kv string) {
		out = slices.DeleteFunc(out, func(o string) bool { return strings.HasPrefix(o, name+"=") })
		if kv != "" {
			out = append(out, kv)
		}
	}
	for _, kv := range own {
		name, v, ok := strings.Cut(kv, "=")
		if !ok || name == "" || matchesName(name, c.Take) {
			continue
		}
		// A step is what its manager says it is, its GPUs among it.
		ofStep := step != nil && (strings.HasPrefix(name, step.Prefix) || slices.Contains(deviceLists, name))
		if ofStep || stranger && slices.Contains(accountNames, name) || c.keeps(name, v) != "" {
			replace(name, kv)
		}
	}
	if dir := cmdline.Value(out, "TMPDIR"); dir != "" && !isDir(dir) && !matchesName("TMPDIR", c.Take) {
		// A job's private directory of the first node (slurmstepd does so, too).
		kept := ""
		if v := cmdline.Value(own, "TMPDIR"); v != "" && isDir(v) {
			kept = "TMPDIR=" + v
		}
		replace("TMPDIR", kept)
	}
	return out
}
