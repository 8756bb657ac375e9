package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fabrun/launcher/cmdline"
	"fabrun/topology/finding"
)

func problem(line int, subject string, sev finding.Severity, seen, wanted, why, hint, fixed string) Problem {
	return Problem{
		Finding: finding.Finding{Severity: sev, Subject: subject, Seen: seen, Wanted: wanted, Why: why, Hint: hint},
		Line:    line, Fixed: fixed,
	}
}

func unreadable(s *Script) []Problem {
	var out []Problem
	for _, u := range s.Unread {
		out = append(out, problem(u.Line, u.Why, finding.Warning, u.Why, "a script that 'bash -n' accepts, a Dockerfile, or a Kubernetes manifest",
			"what stands there is not judged", "", ""))
	}
	return out
}

func typography(s *Script) []Problem {
	var out []Problem
	ascii := strings.NewReplacer("–", "--", "—", "--", "“", `"`, "”", `"`, "‘", "'", "’", "'", "\u00a0", " ")
	for _, w := range s.odd {
		switch {
		case w.Text == "\r":
			out = append(out, problem(1, "line ends", finding.Error, w.Source, "LF", "the shell takes the CR as part of the last word of every line: values end in it",
				"dos2unix the file", ""))
		case w.Source == "=":
			fix := regexp.MustCompile(`\s*=\s*`).ReplaceAllString(s.at(w.Line), "=")
			if !strings.HasPrefix(fix, "export ") {
				fix = "export " + fix
			}
			out = append(out, problem(w.Line, w.Text, finding.Error, "blanks around '='", "none", "the shell runs a program called "+w.Text+"; nothing is set", fix, fix))
		default:
			out = append(out, problem(w.Line, w.Text, finding.Error, strconv.Quote(w.Text), "plain ASCII dashes, quotes and blanks",
				"to the program this is no option and no quote but part of a word", "type it anew", ascii.Replace(s.at(w.Line))))
		}
	}
	return out
}

// notExported finds NAME=value that stays in the shell. A value that is handed
// on by name elsewhere is used after all.
func notExported(s *Script) []Problem {
	used := map[string]bool{}
	for _, set := range s.Settings {
		for _, n := range set.Value.Early {
			used[n] = true
		}
	}
	for _, l := range s.Launches {
		for _, w := range l.Words {
			for _, n := range w.Early {
				used[n] = true
			}
		}
	}
	var out []Problem
	for _, set := range s.Settings {
		if set.How != Assigned || !isOurs(set.Name) || used[set.Name] {
			continue
		}
		fix := "export " + s.at(set.Line)
		if !strings.HasPrefix(s.at(set.Line), set.Name) {
			fix = ""
		}
		out = append(out, problem(set.Line, set.Name, finding.Error, set.Name+" is assigned but not exported", "export",
			"the shell keeps it to itself: no rank sees it", "export "+set.Name, fix))
	}
	return out
}

func tooLate(s *Script) []Problem {
	if len(s.Launches) == 0 || slices.ContainsFunc(s.Launches, func(l Launch) bool { return l.InFunction || l.Kind == "sbatch" }) {
		return nil
	}
	var out []Problem
	for _, set := range s.Settings {
		if set.How != Exported || !isOurs(set.Name) || set.Before < len(s.Launches) || set.InFunction {
			continue
		}
		last := s.Launches[len(s.Launches)-1]
		out = append(out, problem(set.Line, set.Name, finding.Warning, set.Name+" is set after the last launch", fmt.Sprintf("before line %d", last.Line),
			"the job has ended by then: it does nothing", fmt.Sprintf("move it before line %d", last.Line), ""))
	}
	return out
}

// isOpenMPI tells whose mpirun it is, from its own options or the script's.
func (s *Script) isOpenMPI(l Launch) bool {
	if l.Kind != "mpirun" || l.MPI != "" {
		return l.MPI == "openmpi"
	}
	for _, m := range s.modules {
		if strings.Contains(strings.ToLower(m), "openmpi") || strings.Contains(strings.ToLower(m), "hpcx") {
			return true
		}
	}
	return slices.ContainsFunc(s.Settings, func(set Setting) bool { return strings.HasPrefix(set.Name, "OMPI_") })
}

// notForwarded: Open MPI starts its daemons on other nodes by ssh or the
// resource manager and passes on OMPI_ and PMIX_ names only (ompi
// schizo_ompi.c). Under Slurm srun carries the environment to the daemons.
func notForwarded(s *Script) []Problem {
	var out []Problem
	for i, l := range s.Launches {
		if !s.isOpenMPI(l) || s.Batch == "slurm" && !l.Hosts || s.Batch == "" && !l.Hosts {
			continue
		}
		if _, ok := l.Set["OMPI_MCA_mca_base_env_list"]; ok {
			continue
		}
		var lost []string
		for _, set := range s.Settings {
			envList := set.Name == "OMPI_MCA_mca_base_env_list"
			if envList {
				lost = nil
				break
			}
			if set.Before > i || set.How != Exported && !(set.How == Prefixed && set.Launch == i) || !isOurs(set.Name) ||
				strings.HasPrefix(set.Name, "OMPI_") || strings.HasPrefix(set.Name, "PMIX_") || strings.HasPrefix(set.Name, "PRTE_") {
				continue
			}
			_, given := l.Set[set.Name]
			if set.How == Prefixed {
				given = slices.ContainsFunc(s.Settings, func(o Setting) bool { return o.Name == set.Name && o.How == Forwarded && o.Launch == i })
			}
			if given || slices.Contains(lost, set.Name) || slices.ContainsFunc(l.Forward, func(f string) bool { return passes(f, set.Name) }) {
				continue
			}
			lost = append(lost, set.Name)
		}
		if len(lost) == 0 {
			continue
		}
		flags := "-x " + strings.Join(lost, " -x ")
		out = append(out, problem(l.Line, "mpirun", finding.Error, "set but not passed on: "+strings.Join(lost, ", "), flags,
			"Open MPI takes only OMPI_ and PMIX_ names to other nodes: ranks there run with defaults", "add "+flags, insertAfter(s.at(l.Line), l.Words[0].Source, flags)))
	}
	return out
}

func passes(pattern, name string) bool {
	if p, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, p)
	}
	return pattern == name
}

// insertAfter puts flags behind a word of a line.
func insertAfter(line, word, flags string) string {
	i := strings.Index(line, word)
	if word == "" || i < 0 {
		return ""
	}
	i += len(word)
	return line[:i] + " " + flags + line[i:]
}

func forwardValue(s *Script) []Problem {
	var out []Problem
	for _, l := range s.Launches {
		if l.Swallowed.Text == "" {
			continue
		}
		n := l.Forward[len(l.Forward)-1]
		out = append(out, problem(l.Swallowed.Line, n, finding.Error, "-x "+n+" "+l.Swallowed.Text, "-x "+n+"="+l.Swallowed.Text,
			"mpirun takes "+l.Swallowed.Text+" for the program to start", "-x "+n+"="+l.Swallowed.Text,
			strings.Replace(s.at(l.Swallowed.Line), n+" "+l.Swallowed.Text, n+"="+l.Swallowed.Text, 1)))
	}
	return out
}

// exportLists are all --export values: of srun and of #SBATCH lines.
func (s *Script) exportLists() []Word {
	var out []Word
	for i, w := range s.Options {
		if v, ok := strings.CutPrefix(w.Text, "--export="); ok {
			w.Text = v
			out = append(out, w)
		} else if w.Text == "--export" && i+1 < len(s.Options) {
			out = append(out, s.Options[i+1])
		}
	}
	for _, l := range s.Launches {
		if l.Export != nil && (l.Kind == "srun" || l.Kind == "sbatch" || l.Kind == "salloc") {
			out = append(out, *l.Export)
		}
	}
	return out
}

func exportWithoutAll(s *Script) []Problem {
	var out []Problem
	for _, w := range s.exportLists() {
		items := cmdline.SplitExport(w.Text)
		if slices.Contains(items, "ALL") || slices.Contains(items, "NONE") || slices.Contains(items, "NIL") || !w.Static && strings.HasPrefix(w.Text, "$") {
			continue
		}
		out = append(out, problem(w.Line, "--export", finding.Error, "--export="+w.Text, "--export=ALL,…",
			"every other variable of the job is dropped, PATH, LD_LIBRARY_PATH and fabric settings among them", "--export=ALL,"+w.Text,
			strings.Replace(s.at(w.Line), "--export="+w.Text, "--export=ALL,"+w.Text, 1)))
	}
	return out
}

func exportComma(s *Script) []Problem {
	var out []Problem
	for _, w := range s.exportLists() {
		last := ""
		for _, item := range cmdline.SplitExport(w.Text) {
			k, _, is := strings.Cut(item, "=")
			switch {
			case is && name().MatchString(k):
				last = k
				continue
			case item == "ALL" || item == "NONE" || last == "" || !isOurs(last):
				continue
			case looksLikeName(item) || slices.ContainsFunc(s.Settings, func(o Setting) bool { return o.Name == item }):
				continue
			}
			out = append(out, problem(w.Line, last, finding.Error, "--export="+w.Text, "the list in one piece",
				fmt.Sprintf("Slurm cuts at every comma: %s ends before %q", last, ","+item),
				"export "+last+"=… before srun, and --export=ALL", ""))
			break
		}
	}
	return out
}

// looksLikeName: a name to be passed on, not the rest of a value.
func looksLikeName(s string) bool {
	if !name().MatchString(s) || s != strings.ToUpper(s) {
		return false
	}
	return strings.Contains(s, "_") || slices.Contains([]string{"PATH", "HOME", "USER", "LANG", "SHELL", "TERM", "TMPDIR", "PWD"}, s)
}

func exportLoses(s *Script) []Problem {
	var out []Problem
	for i, l := range s.Launches {
		if l.Export == nil || !slices.Contains(cmdline.SplitExport(l.Export.Text), "ALL") {
			continue
		}
		for _, item := range cmdline.SplitExport(l.Export.Text) {
			k, v, is := strings.Cut(item, "=")
			if !is {
				continue
			}
			for _, set := range s.Settings {
				if set.Name == k && set.How == Exported && set.Before <= i && set.Value.Text != v {
					out = append(out, problem(l.Export.Line, k, finding.Warning, fmt.Sprintf("%s=%s in --export, %s=%s exported at line %d", k, v, k, set.Value.Text, set.Line), "one value",
						"with ALL the exported value wins, the one in the list is ignored (srun(1))", fmt.Sprintf("change line %d", set.Line), ""))
					break
				}
			}
		}
	}
	return out
}

// exportNone: sbatch --export=NONE sets SLURM_EXPORT_ENV=NONE, which srun obeys.
func exportNone(s *Script) []Problem {
	none := slices.IndexFunc(s.Options, func(w Word) bool { return w.Text == "--export=NONE" })
	if none < 0 || s.unset["SLURM_EXPORT_ENV"] || slices.ContainsFunc(s.Settings, func(set Setting) bool { return set.Name == "SLURM_EXPORT_ENV" }) {
		return nil
	}
	var out []Problem
	for _, l := range s.Launches {
		if l.Kind != "srun" || l.Export != nil {
			continue
		}
		if slices.ContainsFunc(s.Settings, func(set Setting) bool { return set.How == Exported && isOurs(set.Name) }) {
			out = append(out, problem(l.Line, "srun", finding.Error, fmt.Sprintf("srun inherits --export=NONE of line %d", s.Options[none].Line), "--export=ALL",
				"what the script exports does not reach the tasks", "srun --export=ALL, or 'unset SLURM_EXPORT_ENV' before", insertAfter(s.at(l.Line), l.Words[0].Source, "--export=ALL")))
		}
	}
	return out
}

// taskVars exist only within a task, once a launcher has started it.
func taskVars() []string {
	return []string{
		"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK",
		"PMI_RANK", "PMI_LOCAL_RANK", "PMIX_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "PALS_RANKID", "PALS_LOCAL_RANKID", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID",
	}
}

func expandedEarly(s *Script) []Problem {
	var out []Problem
	for _, l := range s.Launches {
		if l.Kind != "srun" && l.Kind != "mpirun" || l.Depth > 1 {
			continue
		}
		for _, w := range l.Words[1:] {
			i := slices.IndexFunc(w.Early, func(v string) bool { return slices.Contains(taskVars(), v) })
			if i < 0 {
				continue
			}
			out = append(out, problem(w.Line, w.Early[i], finding.Error, w.Source+" on the command line of "+l.Kind, "expanded within the task",
				"the shell expands it once, before any task exists: every task gets the same value", "put the command into bash -c '…' with single quotes, or into a script", ""))
		}
	}
	return out
}

func (s *Script) option(short, long string) string {
	for i, w := range s.Options {
		if v, ok := strings.CutPrefix(w.Text, long+"="); ok {
			return v
		}
		if (w.Text == long || w.Text == short) && i+1 < len(s.Options) {
			return s.Options[i+1].Text
		}
		if v, ok := strings.CutPrefix(w.Text, short); ok && short != "" && !strings.HasPrefix(w.Text, "--") && v != "" {
			return v
		}
	}
	return ""
}

// manyNodes reports whether the job spans nodes, as far as the script says.
func (s *Script) manyNodes() bool {
	count, _, _ := strings.Cut(s.option("-N", "--nodes"), "-")
	if n, err := strconv.Atoi(count); err == nil && n > 1 {
		return true
	}
	for _, l := range s.Launches {
		if v, ok := flagValue(l.Words, "nnodes"); ok && l.Kind == "torchrun" {
			if _, hi, isRange := strings.Cut(v.Text, ":"); isRange {
				v.Text = hi
			}
			if n, err := strconv.Atoi(v.Text); err != nil || n > 1 {
				return true
			}
		}
	}
	return false
}

// flagValue finds --name=value or --name value, with - or _ within the name.
func flagValue(words []Word, flag string) (Word, bool) {
	for i, w := range words {
		opt, v, has := strings.Cut(strings.ReplaceAll(strings.TrimLeft(w.Text, "-"), "-", "_"), "=")
		if !strings.HasPrefix(w.Text, "-") || opt != flag {
			continue
		}
		if has {
			_, w.Text, _ = strings.Cut(w.Text, "=")
			if n, err := strconv.ParseInt(w.Text, 10, 64); err == nil {
				w.Lo, w.Hi, w.Number = n, n, true
			}
			return w, v != ""
		}
		if i+1 < len(words) {
			return words[i+1], true
		}
	}
	return Word{}, false
}

func rendezvousLocal(s *Script) []Problem {
	const why = "where it applies every node meets itself: each runs a job of its own, or waits for ever"
	const hint = "let it fail instead: MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)"
	var out []Problem
	for _, w := range s.rendez {
		fix := regexp.MustCompile(`\s*\|\|\s*(echo|printf)\s+(-n\s+)?["']?(localhost|127\.[0-9.]+|::1)["']?`).ReplaceAllString(s.at(w.Line), "")
		out = append(out, problem(w.Line, "rendezvous", finding.Error, "|| echo "+w.Text, "an address that all nodes reach", why, hint, fix))
	}
	if !s.manyNodes() {
		return out
	}
	for _, set := range s.Settings {
		if (set.Name == "MASTER_ADDR" || set.Name == "MASTER_ADDRESS" || set.Name == "HEAD_NODE_IP") && set.Value.Static && isLocal(set.Value.Text) {
			out = append(out, problem(set.Line, set.Name, finding.Error, set.Name+"="+set.Value.Text+" in a job of several nodes", "an address that all nodes reach", why, hint, ""))
		}
	}
	for _, l := range s.Launches {
		for _, flag := range []string{"rdzv_endpoint", "master_addr"} {
			if v, ok := flagValue(l.Words, flag); ok && l.Kind == "torchrun" && isLocal(v.Text) {
				out = append(out, problem(v.Line, flag, finding.Error, "--"+flag+"="+v.Text+" in a job of several nodes", "an address that all nodes reach", why, hint, ""))
			}
		}
		own, said := flagValue(l.Words, "nnodes")
		if slices.ContainsFunc(l.Words, func(w Word) bool { return w.Text == "--standalone" }) && l.Kind == "torchrun" && said && own.Text != "1" {
			out = append(out, problem(l.Line, "--standalone", finding.Error, "--standalone in a job of several nodes", "--rdzv-backend c10d --rdzv-endpoint HOST:PORT", why, hint, ""))
		}
	}
	return out
}

// The kernel's default range for the ports of outgoing connections
// (net.ipv4.ip_local_port_range).
const ephemeralFirst, ephemeralLast = 32768, 60999

var portName = lazy(`(?i)^(MASTER_PORT|RDZV_PORT|RENDEZVOUS_PORT|DIST_PORT|.*_MASTER_PORT|MAIN_PROCESS_PORT)$`)

func ports(s *Script) []Problem {
	var out []Problem
	judge := func(w Word, line int, what string) {
		if !w.Number {
			return
		}
		seen := fmt.Sprintf("%s is %d", what, w.Lo)
		if w.Lo != w.Hi {
			seen = fmt.Sprintf("%s is between %d and %d", what, w.Lo, w.Hi)
		}
		switch {
		case w.Hi > 65535 || w.Lo < 1:
			out = append(out, problem(line, what, finding.Error, seen, "1024 to 32767", "there is no such port", "", ""))
			out[len(out)-1].ID = "script.port-range"
		case w.Hi >= ephemeralFirst && w.Lo <= ephemeralLast:
			fix := ""
			if w.Lo == w.Hi {
				fix = strings.Replace(s.at(line), strconv.FormatInt(w.Lo, 10), "29500", 1)
			}
			out = append(out, problem(line, what, finding.Warning, seen, "below 32768",
				"the kernel gives ports from 32768 to 60999 to outgoing connections: now and then it is taken", "derive it from the job: $((20000 + SLURM_JOB_ID % 10000))", fix))
		}
	}
	for _, set := range s.Settings {
		if portName().MatchString(set.Name) {
			judge(set.Value, set.Line, set.Name)
		}
	}
	for _, l := range s.Launches {
		if l.Kind != "torchrun" {
			continue
		}
		for _, flag := range []string{"master_port", "main_process_port"} {
			if v, ok := flagValue(l.Words, flag); ok {
				judge(v, v.Line, "--"+flag)
			}
		}
		if v, ok := flagValue(l.Words, "rdzv_endpoint"); ok {
			if i := strings.LastIndexByte(v.Text, ':'); i >= 0 {
				if n, err := strconv.ParseInt(v.Text[i+1:], 10, 64); err == nil {
					judge(Word{Lo: n, Hi: n, Number: true}, v.Line, "--rdzv_endpoint")
				}
			}
		}
	}
	return out
}

func rankVars() []string {
	return append(taskVars(), "LOCAL_RANK", "RANK", "CUDA_VISIBLE_DEVICES", "JSM_NAMESPACE_LOCAL_RANK", "HOROVOD_LOCAL_RANK", "local_rank", "lrank")
}

// perRank finds recipes that give each rank the HCA of its GPU: by index, by
// array, by case or if. They are right for UCX and wrong for NCCL, which needs
// the same set in every rank of a node.
func perRank(s *Script) []Problem {
	var out []Problem
	for _, set := range s.Settings {
		if set.Name != "NCCL_IB_HCA" {
			continue
		}
		by := slices.IndexFunc(append(slices.Clone(set.Value.Refs), set.Under...), func(v string) bool { return slices.Contains(rankVars(), v) && v != "SLURM_NODEID" })
		if by < 0 {
			continue
		}
		v := append(slices.Clone(set.Value.Refs), set.Under...)[by]
		out = append(out, problem(set.Line, set.Name, finding.Error, "a different device per rank, by "+v, "one list of all devices of the node, the same for every rank",
			"NCCL builds its rings over the devices that all ranks of a node share", "name all devices once: NCCL_IB_HCA='=mlx5_0,mlx5_1,…' (NCCL itself picks the nearest for each GPU)", ""))
	}
	return out
}

func memlock(s *Script) []Problem {
	var out []Problem
	for _, w := range s.ulimits {
		if n, err := strconv.Atoi(w.Text); err == nil && n < 1<<20 {
			out = append(out, problem(w.Line, "ulimit -l", finding.Error, fmt.Sprintf("locked memory limited to %d kB", n), "unlimited",
				"RDMA memory cannot be registered", "ulimit -l unlimited", regexp.MustCompile(`(ulimit\s+-\w*l\w*\s+)\S+`).ReplaceAllString(s.at(w.Line), "${1}unlimited")))
		}
	}
	return out
}
