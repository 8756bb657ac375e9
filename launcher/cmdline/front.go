package cmdline

import (
	"path"
	"slices"
	"strings"
)

// wrapper is a program that prepares something and then becomes, or starts,
// another one: what stands behind it in the command line.
type wrapper struct {
	name  string
	value string // its options that take the next word as their value
	flags string // its options that take none
	own   int    // words of its own in front of the program, behind its options: timeout's duration
	binds bool   // it says where the process runs
	// dashed: the program stands behind "--" and nowhere else is it certain.
	dashed bool
}

// wrappers is the explicit list. Sources: the programs' own manuals (coreutils
// 9.1, util-linux 2.38, numactl 2.0.16, time 1.9, hwloc 2.9, likwid 5.2,
// expect 5.45).
var wrappers = []wrapper{
	{name: "env"}, // read by readEnv
	{name: "nohup"},
	{name: "time", value: "-f --format -o --output", flags: "-a --append -p --portability -q --quiet -v --verbose"},
	{name: "nice", value: "-n --adjustment"},
	{name: "ionice", value: "-c --class -n --classdata", flags: "-t --ignore"},
	{name: "stdbuf", value: "-i --input -o --output -e --error"},
	{name: "timeout", value: "-k --kill-after -s --signal", flags: "--foreground --preserve-status -v --verbose", own: 1},
	{name: "setsid", flags: "-c --ctty -f --fork -w --wait"},
	{name: "chrt", flags: "-b --batch -f --fifo -i --idle -o --other -r --rr -R --reset-on-fork -v --verbose", own: 1},
	{name: "unbuffer", flags: "-p"},
	{name: "taskset", flags: "-a --all-tasks -c --cpu-list", own: 1, binds: true},
	{
		name: "numactl", binds: true,
		value: "-i --interleave -w --weighted-interleave -p --preferred -P --preferred-many -m --membind -N --cpunodebind -C --physcpubind",
		flags: "-a --all -b --balancing -l --localalloc",
	},
	{name: "hwloc-bind", binds: true, dashed: true},
	{name: "likwid-pin", value: "-c -s -d", flags: "-q -i -S -m", binds: true},
}

// Front is what stands in front of a program: env VAR=x, numactl -N 0, nohup.
type Front struct {
	At     int      // index of the program's own word
	Env    []string // NAME=VALUE set on the way
	Unset  []string // names removed on the way
	Clear  bool     // env -i: nothing of the environment arrives
	Binder string   // the wrapper that says where the process runs; ""
	Doubt  string   // the wrapper whose words are not all understood; At is its own index
}

// readFront reads the wrappers at the front of words. Where one cannot be read
// for certain it stops there, and that wrapper is the program.
func readFront(words []string) Front {
	var f Front
	for f.At < len(words) {
		base := path.Base(words[f.At])
		i := slices.IndexFunc(wrappers, func(w wrapper) bool { return w.name == base })
		if i < 0 {
			return f
		}
		next, ok := 0, false
		if base == "env" {
			next, ok = f.readEnv(words)
		} else {
			next, ok = wrappers[i].end(words, f.At+1)
		}
		if !ok || next >= len(words) {
			f.Doubt = base
			return f
		}
		if wrappers[i].binds {
			f.Binder = base
		}
		f.At = next
	}
	return f
}

// end returns the index of the word behind a wrapper's own ones.
func (w wrapper) end(words []string, i int) (int, bool) {
	if w.dashed {
		n := slices.Index(words[i:], "--")
		return i + n + 1, n >= 0
	}
	value, flags := strings.Fields(w.value), strings.Fields(w.flags)
	for ; i < len(words) && strings.HasPrefix(words[i], "-") && words[i] != "-"; i++ {
		word := words[i]
		if word == "--" {
			i++
			break
		}
		name, _, joined := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "--") && joined && slices.Contains(value, name):
		case slices.Contains(flags, word):
		case slices.Contains(value, word):
			i++
		case !strings.HasPrefix(word, "--") && len(word) > 2 && slices.Contains(value, word[:2]):
			// -oL, -n5
		case !strings.HasPrefix(word, "--") && !strings.ContainsFunc(word[1:], func(r rune) bool { return !slices.Contains(flags, "-"+string(r)) }):
			// -av
		case w.name == "nice" && strings.Trim(word[1:], "0123456789") == "":
			// nice -5
		default:
			return i, false
		}
	}
	return i + w.own, true
}

// readEnv reads env(1): options, NAME=VALUE words, then the program.
func (f *Front) readEnv(words []string) (int, bool) {
	i := f.At + 1
	for ; i < len(words); i++ {
		switch w := words[i]; {
		case w == "-i" || w == "-" || w == "--ignore-environment":
			f.Clear = true
		case w == "-u" || w == "--unset":
			if i++; i < len(words) {
				f.Unset = append(f.Unset, words[i])
			}
		case strings.HasPrefix(w, "--unset="):
			f.Unset = append(f.Unset, strings.TrimPrefix(w, "--unset="))
		case strings.HasPrefix(w, "-u") && !strings.HasPrefix(w, "--"):
			f.Unset = append(f.Unset, w[2:])
		case w == "-C" || w == "--chdir":
			i++
		case strings.HasPrefix(w, "--chdir="), w == "-v", w == "--debug":
		case w == "--":
			// NAME=VALUE words still follow it.
		case strings.HasPrefix(w, "-"):
			return i, false
		default:
			if name, _, ok := strings.Cut(w, "="); ok && name != "" {
				f.Env = append(f.Env, w)
				continue
			}
			return i, true
		}
	}
	return i, true
}

// launcherAt is the index of the word that names the launcher: 0, or behind
// wrappers that lead to one for certain. Behind "env -i" nothing that fabrun
// sets would arrive, so that is not looked through.
func launcherAt(argv []string) (int, Front) {
	f := readFront(argv)
	if f.At == 0 || f.Clear || f.Doubt != "" || f.At >= len(argv) || !startsRanks(argv[f.At:]) {
		return 0, Front{}
	}
	return f.At, f
}

// LauncherAt is the index of the word that names the launcher.
func LauncherAt(argv []string) int {
	at, _ := launcherAt(argv)
	return at
}

// EnvAt is the environment that the launcher in a command line is started with:
// what "env NAME=VALUE" in front of it sets is the user's as much as the
// environment is.
func EnvAt(argv, env []string) []string {
	_, f := launcherAt(argv)
	if len(f.Env) == 0 && len(f.Unset) == 0 {
		return env
	}
	gone := func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(f.Unset, name) || slices.ContainsFunc(f.Env, func(set string) bool { return strings.HasPrefix(set, name+"=") })
	}
	return append(slices.DeleteFunc(slices.Clone(env), gone), f.Env...)
}

// ClearsEnvironment is the launcher behind an "env -i", which nothing that is
// set in the environment reaches; "" where there is none.
func ClearsEnvironment(argv []string) string {
	if f := readFront(argv); f.Clear && f.At < len(argv) && startsRanks(argv[f.At:]) {
		return argv[f.At]
	}
	return ""
}
