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
	// sub is the word by which it starts a program in an environment of its own,
	// with another PATH: "run". Its options may stand before and behind it.
	sub string
}

// wrappers is the explicit list. Sources: the programs' own manuals (coreutils
// 9.1, util-linux 2.38, numactl 2.0.16, time 1.9, hwloc 2.9, likwid 5.2,
// expect 5.45; the command line references of uv 0.9, conda 25, micromamba 2,
// poetry 2, pixi 0.5x, hatch 1.14, PDM 2.2x, rye and pipenv).
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
	{
		name: "uv", sub: "run",
		value: "--with -w --with-editable --with-requirements -p --python --extra --no-extra --group --no-group --only-group --env-file --index --default-index -i --index-url --extra-index-url " +
			"-f --find-links --index-strategy --keyring-provider --resolution --prerelease --fork-strategy --exclude-newer -C --config-setting --config-settings-package --link-mode -P --upgrade-package " +
			"--refresh-package --reinstall-package --no-build-package --no-binary-package --no-build-isolation-package --cache-dir --package --project --directory --config-file --color --python-platform --allow-insecure-host",
		flags: "--all-extras --dev --no-dev --only-dev --all-groups --no-default-groups --isolated --active --no-active --no-sync --locked --frozen --exact --no-editable --no-project --no-env-file --all-packages " +
			"-q --quiet -v --verbose --offline --native-tls --no-cache -n --no-config --no-progress --no-index -U --upgrade --reinstall --refresh --no-build --no-binary --no-build-isolation --compile-bytecode " +
			"--managed-python --no-managed-python --no-python-downloads --no-sources",
	},
	{name: "conda", sub: "run", value: "-n --name -p --prefix --cwd", flags: "-v -vv --verbose --dev --debug-wrapper-scripts --no-capture-output --live-stream"},
	{name: "mamba", sub: "run", value: "-n --name -p --prefix --cwd -a --attach -e --env", flags: "-v -vv --verbose --no-capture-output --live-stream"},
	{name: "micromamba", sub: "run", value: "-n --name -p --prefix -r --root-prefix --cwd -a --attach -e --env", flags: "-v --verbose -q --quiet"},
	{name: "poetry", sub: "run", value: "-C --directory -P --project", flags: "-q --quiet -v -vv -vvv --verbose -n --no-interaction --ansi --no-ansi --no-plugins --no-cache"},
	{name: "pixi", sub: "run", value: "-e --environment -m --manifest-path -w --workspace --color", flags: "--frozen --locked --as-is --no-install -x --executable --skip-deps --force-activate -q --quiet -v -vv --verbose --no-progress"},
	{name: "hatch", sub: "run", value: "-e --env -p --project --config --data-dir --cache-dir", flags: "-q --quiet -v --verbose --color --no-color --interactive --no-interactive"},
	{name: "pdm", sub: "run", value: "-p --project --venv -c --config", flags: "-s --site-packages --recreate -q --quiet -v --verbose -I --ignore-python"},
	{name: "rye", sub: "run", value: "-f --pyproject"},
	{name: "pipenv", sub: "run", value: "--python", flags: "-q --quiet -v --verbose --site-packages --system"},
}

// Front is what stands in front of a program: env VAR=x, numactl -N 0, nohup.
type Front struct {
	At     int      // index of the program's own word
	Env    []string // NAME=VALUE set on the way
	Unset  []string // names removed on the way
	Clear  bool     // env -i: nothing of the environment arrives
	Runner string   // the wrapper with an environment and a PATH of its own: "uv run"; ""
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
		if wrappers[i].sub != "" {
			f.Runner = base + " " + wrappers[i].sub
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
	if w.sub != "" {
		at, ok := w.options(words, i)
		if !ok || at >= len(words) || words[at] != w.sub {
			return i, false
		}
		i = at + 1
	}
	i, ok := w.options(words, i)
	return i + w.own, ok
}

// options returns the index of the word behind a wrapper's options.
func (w wrapper) options(words []string, i int) (int, bool) {
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
	return i, true
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
// sets would arrive, so that is not looked through; nor is what brings its own
// PATH, where another launcher of the same name may stand, but for Python's own, of
// each of which there is one kind.
func launcherAt(argv []string) (int, Front) {
	f := readFront(argv)
	if f.Runner != "" {
		if f.At >= len(argv) {
			return 0, Front{}
		}
		if d := identify(argv[f.At:], "", "").Dialect; !d.PerNode && (!d.Python || d.Workers == nil) {
			return 0, Front{}
		}
	}
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

// RunnerAt is what stands in front of the launcher and finds it in a PATH of its
// own: "uv run"; "" nothing.
func RunnerAt(argv []string) string {
	_, f := launcherAt(argv)
	return f.Runner
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

// OfProcess is a launcher's command line as it would be typed, of a process whose
// own has the interpreter of the launcher's script in front.
func OfProcess(argv []string) []string {
	if len(argv) > 1 && strings.Contains(argv[1], "/") && startsRanks(argv[1:]) {
		switch base := path.Base(argv[0]); {
		case strings.HasPrefix(base, "python"), base == "sh", base == "bash", base == "dash":
			return argv[1:]
		}
	}
	return argv
}
