package lint

import (
	"slices"
	"strings"

	"fabrun/launcher/cmdline"
)

// launch reads the command line of a launcher, and of what it starts where
// that is a launcher too. It returns the index of the launch.
func (r *reader) launch(kind string, words []Word) int {
	if len(r.s.Launches) >= 4096 {
		return -1
	}
	n := len(r.s.Launches)
	r.s.Launches = append(r.s.Launches, Launch{Kind: kind, Line: words[0].Line, Words: words, Set: map[string]string{}, Depth: r.depth, InFunction: r.inFunc})
	switch kind {
	case "mpirun":
		l := &r.s.Launches[n]
		var d *cmdline.Dialect
		d, l.MPI = cmdline.Guess(texts(words))
		r.readAs(n, d, words)
	case "srun", "sbatch", "salloc":
		r.readAs(n, cmdline.Srun, joinWrap(words))
	}
	return n
}

func texts(words []Word) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w.Text
	}
	return out
}

// joinWrap makes "--wrap WORDS" of sbatch, which srun has not, one word.
func joinWrap(words []Word) []Word {
	i := slices.IndexFunc(words, func(w Word) bool { return w.Text == "--wrap" })
	if i < 0 || i+1 >= len(words) {
		return words
	}
	joined := words[i+1]
	joined.Text = "--wrap=" + joined.Text
	return slices.Concat(words[:i], []Word{joined}, words[i+2:])
}

// readAs takes what the launcher's options set, and reads on with the programs.
func (r *reader) readAs(n int, d *cmdline.Dialect, words []Word) {
	c := cmdline.Parse(cmdline.Launcher{Dialect: d, Words: 1}, texts(words))
	for _, src := range c.HostSources(nil) {
		if src.File != "" || src.List != "" && !onlyLocal(src.List) {
			r.s.Launches[n].Hosts = true
		}
	}
	for _, app := range c.Apps {
		for _, o := range app.Options {
			r.option(n, d, o, words)
		}
		at := app.Program
		if at < app.To && at >= 2 && d.Forwards(words[at-2].Text) && !strings.Contains(words[at-1].Text, "=") && aValue().MatchString(words[at].Text) {
			r.s.Launches[n].Swallowed = words[at]
		}
		// mpirun_rsh -np 2 -hostfile h A=B ./prog
		for ; at < app.To; at++ {
			k, v, ok := strings.Cut(words[at].Text, "=")
			if !ok || !name().MatchString(k) {
				break
			}
			r.sets(n, k, v, words[at], Forwarded)
		}
		if at < app.To {
			r.command(words[at:app.To])
		}
	}
}

func (r *reader) sets(n int, name, value string, w Word, how How) {
	w.Text = value
	r.set(Setting{Name: name, Value: w, Line: w.Line, How: how, Launch: n})
	r.s.Launches[n].Set[name] = value
}

// option takes what one option of a launcher hands on or sets.
func (r *reader) option(n int, d *cmdline.Dialect, o cmdline.Option, words []Word) {
	w := words[o.At+o.Words-1]
	if o.Name == "wrap" && len(o.Values) == 1 {
		w.Text = o.Values[0]
		r.nested(w)
		return
	}
	how := Forwarded
	switch {
	case strings.HasSuffix(o.Name, "mca"):
		how = MCA
	case d.Export != nil && o.Name == d.Export.Option && len(o.Values) == 1:
		how = SrunList
		list := w
		list.Text = o.Values[0]
		r.s.Launches[n].Export = &list
	}
	d.Sets(o, words[o.At].Text, func(k, v, _ string) {
		if name().MatchString(k) {
			r.sets(n, k, v, w, how)
		}
	})
	if d.Forwards(words[o.At].Text) && len(o.Values) == 1 && !strings.Contains(o.Values[0], "=") {
		r.s.Launches[n].Forward = append(r.s.Launches[n].Forward, strings.Split(o.Values[0], ",")...)
	}
}

// aValue is what nobody calls a program.
var aValue = lazy(`^([0-9]+|INFO|WARN|TRACE|VERSION|AF_INET6?|LOC|PIX|PXB|PHB|SYS|IB|Socket|=?(mlx[45]_|bnxt_re|irdma|rocep|ibp|eth|ens|eno|bond)[A-Za-z0-9_]*(:[0-9]+)?(,\S*)?)$`)

func onlyLocal(hosts string) bool {
	for h := range strings.SplitSeq(hosts, ",") {
		if !isLocal(h) {
			return false
		}
	}
	return true
}
