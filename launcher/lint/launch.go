package lint

import (
	"slices"
	"strings"
)

// launch reads the command line of a launcher, and of what it starts where
// that is a launcher too. It returns the index of the launch.
func (r *reader) launch(kind string, words []Word) int {
	l := Launch{Kind: kind, Line: words[0].Line, Words: words, Set: map[string]string{}, Depth: r.depth, InFunction: r.inFunc}
	if len(r.s.Launches) >= 4096 {
		return -1
	}
	n := len(r.s.Launches)
	r.s.Launches = append(r.s.Launches, l)
	rest := words[1:]
	switch kind {
	case "mpirun":
		rest = r.mpirun(n, rest)
	case "srun", "sbatch", "salloc":
		rest = r.srun(n, rest)
	default:
		return n
	}
	if len(rest) > 0 {
		r.command(rest)
	}
	return n
}

// mpirunOne are the options with one value of Open MPI, MPICH's Hydra and
// Intel MPI that matter for finding where the program begins.
func mpirunOne() []string {
	return []string{
		"-np", "-n", "--np", "-c", "-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f", "-H", "-host", "--host", "-hosts", "--hosts",
		"--map-by", "-map-by", "--bind-to", "-bind-to", "--rank-by", "-rank-by", "-ppn", "-perhost", "-N", "--npernode", "-npernode", "--npersocket", "-npersocket",
		"--prefix", "-prefix", "-wdir", "--wdir", "-wd", "--output-filename", "-output-filename", "--rankfile", "-rf", "--timeout", "-iface", "-launcher", "-bootstrap",
		"-genvlist", "-envlist", "--mca-base-env-list", "--output", "--display", "--cpu-set", "--cpu-list", "--path", "-path", "--pernode-np", "--tune", "-tune", "--am", "-am",
		"-rmk", "-configfile", "--report-uri", "--app", "--default-hostfile", "--runtime-options", "-binding", "-prepend-pattern", "-outfile-pattern", "-errfile-pattern",
	}
}

// mpirun reads the options and returns the program's words.
func (r *reader) mpirun(n int, words []Word) []Word {
	l := &r.s.Launches[n]
	is := func(kind string) {
		if l.MPI == "" {
			l.MPI = kind
		}
	}
	set := func(k string, w Word, v string, how How) {
		value := w
		value.Text = v
		r.set(Setting{Name: k, Value: value, Line: w.Line, How: how, Launch: n})
		l.Set[k] = v
	}
	for i := 0; i < len(words); i++ {
		w := words[i]
		opt, inline, hasInline := strings.Cut(w.Text, "=")
		next := func() (Word, bool) {
			if hasInline {
				v := w
				v.Text = inline
				return v, true
			}
			if i+1 < len(words) {
				i++
				return words[i], true
			}
			return Word{}, false
		}
		switch {
		case w.Text == "-x" || w.Text == "--x":
			is("openmpi")
			v, ok := next()
			if !ok {
				return nil
			}
			for item := range strings.SplitSeq(v.Text, ",") {
				k, val, has := strings.Cut(v.Text, "=")
				if has {
					set(k, v, val, Forwarded)
					break
				}
				l.Forward = append(l.Forward, item)
			}
		case opt == "--mca" || opt == "-mca" || opt == "--gmca" || opt == "-gmca" || opt == "--omca":
			is("openmpi")
			k, ok1 := next()
			hasInline = false
			v, ok2 := next()
			if !ok1 || !ok2 {
				return nil
			}
			set("OMPI_MCA_"+k.Text, v, v.Text, MCA)
		case opt == "--prtemca" || opt == "--pmixmca":
			is("openmpi")
			next()
			next()
		case w.Text == "-genv" || w.Text == "-env":
			k, ok1 := next()
			if key, val, joined := strings.Cut(k.Text, "="); ok1 && joined {
				set(key, k, val, Forwarded) // Intel MPI takes NAME=value as one word too
				continue
			}
			v, ok2 := next()
			if !ok1 || !ok2 {
				return nil
			}
			is("mpich")
			set(k.Text, v, v.Text, Forwarded)
		case w.Text == "-genvall" || w.Text == "-ppn" || w.Text == "-genvnone" || w.Text == "-iface":
			is("mpich")
			if w.Text == "-ppn" || w.Text == "-iface" {
				next()
			}
		case opt == "--map-by" || opt == "--rank-by" || opt == "--report-bindings" || opt == "--allow-run-as-root" || opt == "--oversubscribe" || opt == "--npernode" || opt == "-npernode" || opt == "--tag-output":
			is("openmpi")
			if slices.Contains(mpirunOne(), opt) {
				next()
			}
		case slices.Contains(mpirunOne(), opt):
			if slices.Contains([]string{"-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f", "-H", "-host", "--host", "-hosts", "--hosts"}, opt) {
				if v, ok := next(); ok && !onlyLocal(v.Text) {
					l.Hosts = true
				}
				continue
			}
			next()
		case w.Text == "--":
			return words[i+1:]
		case strings.HasPrefix(w.Text, "-"):
		case name().MatchString(opt) && hasInline: // mpirun_rsh -np 2 h1 h2 A=B ./prog
			set(opt, w, inline, Forwarded)
		default:
			if i > 1 && (words[i-2].Text == "-x" || words[i-2].Text == "--x") && !strings.Contains(words[i-1].Text, "=") && aValue().MatchString(w.Text) {
				l.Swallowed = w
			}
			return words[i:]
		}
	}
	return nil
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

// srunOne are srun's and sbatch's options with a value in the next word.
func srunOne() []string {
	return []string{
		"-n", "-N", "-c", "-p", "-w", "-x", "-t", "-A", "-J", "-o", "-e", "-i", "-D", "-C", "-d", "-m", "-q", "-r", "-S", "-G", "-B", "-L", "-M", "-a",
		"--ntasks", "--nodes", "--cpus-per-task", "--partition", "--nodelist", "--exclude", "--time", "--account", "--job-name", "--output", "--error", "--input", "--chdir",
		"--constraint", "--dependency", "--distribution", "--qos", "--relative", "--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--ntasks-per-node", "--mem", "--mem-per-cpu",
		"--mpi", "--cpu-bind", "--gpu-bind", "--mem-bind", "--export", "--export-file", "--container-image", "--container-mounts", "--container-workdir", "--container-name", "--network",
		"--propagate", "--task-prolog", "--task-epilog", "--wrap", "--comment", "--reservation", "--signal", "--switches", "--cores-per-socket", "--ntasks-per-gpu", "--ntasks-per-socket", "--threads-per-core", "--jobid",
	}
}

// srun reads the options of srun and sbatch and returns the program's words.
func (r *reader) srun(n int, words []Word) []Word {
	l := &r.s.Launches[n]
	for i := 0; i < len(words); i++ {
		w := words[i]
		opt, inline, has := strings.Cut(w.Text, "=")
		switch {
		case opt == "--export" || opt == "--wrap":
			v := w
			v.Text = inline
			if !has && i+1 < len(words) {
				i++
				v = words[i]
			}
			if opt == "--wrap" {
				r.nested(v)
				l = &r.s.Launches[n]
				continue
			}
			l.Export = &v
			for _, item := range exportItems(v.Text) {
				if k, val, ok := strings.Cut(item, "="); ok && name().MatchString(k) {
					value := v
					value.Text = val
					r.set(Setting{Name: k, Value: value, Line: v.Line, How: SrunList, Launch: n})
					l.Set[k] = val
				}
			}
		case slices.Contains(srunOne(), w.Text) && i+1 < len(words):
			i++
		case w.Text == "--" || w.Text == ":":
			return words[i+1:]
		case strings.HasPrefix(w.Text, "-"):
		default:
			return words[i:]
		}
	}
	return nil
}

// exportItems splits as Slurm does: at commas, but for those within single quotes.
func exportItems(s string) []string {
	var out []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\'':
			quoted = !quoted
		case ',':
			if !quoted {
				out = append(out, strings.Trim(s[start:i], "'"))
				start = i + 1
			}
		}
	}
	return append(out, strings.Trim(s[start:], "'"))
}
