package cmdline

import (
	"path"
	"slices"
	"strings"

	"fabrun/topology"
)

// Wrapped is what stands in front of the ranks' real program: wrappers, and
// then perhaps a container runtime.
type Wrapped struct {
	Front
	Container string   // "apptainer", "docker", …; "" none
	Insert    int      // index where the runtime's own options may be added; -1
	Inside    []string // NAME=VALUE of communication libraries that the user has the runtime set inside
	Image     int      // index of the image's word, which ends the runtime's options; -1 not known

	lacks, given []topology.Need // what it has not by itself, and what its options give it
}

// runtime is how a container runtime's words in front of its image are read.
type runtime struct {
	names []string
	verbs []string // what stands in front of the options; nil: it has no verbs
	value string   // options that take the next word
	flags string   // options that take none
	// valued: an option in neither list takes a value.
	valued bool
	env    []string        // the options that set a variable
	lacks  []topology.Need // what a new container of it has not by itself
	list   bool            // which take several settings, with commas between them
}

// runtimes is the explicit list of those whose options are read. Sources: the
// command-line references of Docker 27 and Podman 5, apptainer(1) 1.3, enroot's
// doc/cmd/start.md.
var runtimes = []runtime{
	{
		names: []string{"docker", "podman", "nerdctl"}, verbs: []string{"run", "exec", "create"}, valued: true, env: []string{"-e", "--env"},
		lacks: []topology.Need{topology.NeedDevices, topology.NeedMemlock, topology.NeedNetwork},
		flags: `-d --detach -i --interactive -t --tty --rm --privileged --init --no-healthcheck --oom-kill-disable -P --publish-all
			--read-only --sig-proxy --disable-content-trust -q --quiet --help --use-api-socket --replace --rmi --no-hosts --no-hostname
			--env-host --http-proxy --tls-verify --rootfs --unsetenv-all --read-only-tmpfs --passwd -l --latest`,
	},
	{
		names: []string{"apptainer", "singularity"}, verbs: []string{"exec", "run", "shell"}, env: []string{"--env"}, list: true,
		value: `--add-caps --app --apply-cgroups --authfile -B --bind --blkio-weight --blkio-weight-device --cpu-shares --cpus --cpuset-cpus
			--cpuset-mems --cwd --dns --docker-host --drop-caps --env --env-file --fusemount -H --home --hostname --memory
			--memory-reservation --memory-swap --mount --network --network-args --no-mount -o --overlay --pem-path --pids-limit
			--pwd -S --scratch --security -s --shell -W --workdir`,
	},
	{
		names: []string{"enroot"}, verbs: []string{"start", "exec", "create"}, env: []string{"-e", "--env"},
		value: "-c --conf -e --env -m --mount --rc -n --name",
	},
	{names: []string{"ch-run", "shifter", "sarus", "charliecloud", "udocker"}},
}

// walk reads what stands in front of a program.
func walk(words []string) Wrapped {
	w := Wrapped{Front: readFront(words), Insert: -1, Image: -1}
	if w.At >= len(words) {
		return w
	}
	base := path.Base(words[w.At])
	i := slices.IndexFunc(runtimes, func(r runtime) bool { return slices.Contains(r.names, base) })
	if i < 0 {
		return w
	}
	r := runtimes[i]
	if r.verbs == nil {
		w.Container = base
		return w
	}
	at := slices.IndexFunc(words[w.At+1:], func(word string) bool { return slices.Contains(r.verbs, word) })
	if at < 0 {
		return w
	}
	w.Container = base
	if running := words[w.At+1+at] == "exec" && !r.list; !running {
		w.lacks = slices.Clone(r.lacks)
	}
	if !r.list { // apptainer takes the whole environment inside
		w.Insert = w.At + 1 + at + 1
	}
	r.options(&w, words, w.At+1+at+1)
	return w
}

// options reads a runtime's options up to its image.
func (r runtime) options(w *Wrapped, words []string, i int) {
	value, flags := strings.Fields(r.value), strings.Fields(r.flags)
	takes := func(option string) bool {
		return slices.Contains(value, option) || r.valued && !slices.Contains(flags, option)
	}
	for ; i < len(words) && strings.HasPrefix(words[i], "-"); i++ {
		word := words[i]
		if word == "--" {
			i++
			break
		}
		option, given, joined := word, "", false
		if strings.HasPrefix(word, "--") {
			option, given, joined = strings.Cut(word, "=")
		} else {
			// -it, -eNAME=VALUE, -itv /a:/b
			for j := 1; j < len(word); j++ {
				if option = "-" + word[j:j+1]; takes(option) {
					given, joined = strings.TrimPrefix(word[j+1:], "="), j+1 < len(word)
					break
				}
			}
		}
		if !joined && takes(option) {
			if i++; i >= len(words) {
				return
			}
			given = words[i]
		}
		if slices.Contains(r.env, option) {
			r.sets(w, given)
		}
		w.given = append(w.given, gives(option, given)...)
		w.lacks = append(w.lacks, r.asks(option, given)...)
	}
	if i < len(words) {
		w.Image = i
	}
}

// sets notes what a runtime is told to set inside, as far as it is a
// communication library's.
func (r runtime) sets(w *Wrapped, text string) {
	items := []string{text}
	if r.list {
		items = strings.Split(text, ",")
	}
	for _, item := range items {
		if name, _, ok := strings.Cut(item, "="); ok && IsLibraryVar(name) {
			w.Inside = append(w.Inside, item)
		}
	}
}

// InContainer is the launcher that a container's own words begin with, which
// starts its ranks in there; "" where there is none, or that is not certain.
func (c Command) InContainer() string {
	for _, app := range c.Apps {
		if w := c.Wrapped(app); w.Container != "" && w.Image >= 0 {
			words := c.Argv[app.Program:app.To][w.Image+1:]
			if f := readFront(words); f.Doubt == "" && f.At < len(words) {
				if startsRanks(words[f.At:]) {
					return path.Base(words[f.At])
				}
			}
		}
	}
	return ""
}

// Wrapped is what stands in front of the real program of one application.
func (c Command) Wrapped(app App) Wrapped { return walk(c.Argv[app.Program:app.To]) }
