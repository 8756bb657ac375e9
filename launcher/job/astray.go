package job

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/plan"
)

// A script's own torchrun goes through fabrun when it is found in PATH. One that is
// called by its path, or that an environment puts in front of PATH, does not, and
// would train on one host what was meant for all of them.

// astrayEvery is the pause between looks: torchrun takes longer to begin.
const astrayEvery = 200 * time.Millisecond

// astrayLook watches for a torchrun that was started past fabrun.
type astrayLook struct {
	hosts int
	end   context.CancelFunc

	mu    sync.Mutex
	found string // its command line; "" none
}

// lookAstray has the job ended when a torchrun of it would run on this host alone,
// where the user has named several to fabrun; nil where that cannot be.
func lookAstray(p plan.Plan, job *preparedJob, end context.CancelFunc) *astrayLook {
	n := len(p.Hosts.Hosts)
	if !p.Dialect.Alone || n < 2 || !strings.HasPrefix(p.Hosts.Source, "--") {
		return nil
	}
	l := &astrayLook{hosts: n, end: end}
	started := job.spec.Started
	job.spec.Started = func(pid int) {
		if started != nil {
			started(pid)
		}
		go l.run(pid)
	}
	return l
}

// run ends with the child.
func (l *astrayLook) run(pid int) {
	for {
		all := launcher.Below(pid)
		if len(all) == 0 {
			return
		}
		for _, p := range all {
			if words := cmdline.OfProcess(p.Argv); l.astray(words, p.Env) {
				l.mu.Lock()
				l.found = strings.Join(words, " ")
				l.mu.Unlock()
				l.end()
				return
			}
		}
		time.Sleep(astrayEvery)
	}
}

// astray reports whether a process is a torchrun for which nobody has arranged
// several hosts.
func (l *astrayLook) astray(words []string, env func() []string) bool {
	id := cmdline.Identify(words, "", "")
	if !id.Dialect.PerNode || id.Words > 1 && !strings.HasPrefix(filepath.Base(words[0]), "python") || asksOnly(words[id.Words:]) {
		return false
	}
	spread, _ := cmdline.Parse(id, words).TorchSpread(env(), l.hosts)
	return spread
}

// asksOnly: "torchrun --help" starts nothing.
func asksOnly(words []string) bool {
	return len(words) == 0 || len(words) == 1 && strings.HasPrefix(words[0], "-")
}

// err is the reason for which the job was ended.
func (l *astrayLook) err() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found == "" {
		return nil
	}
	const most = 200
	what := l.found
	if len(what) > most {
		what = what[:most] + "…"
	}
	return &exit.Error{
		Code: exit.NoPlan, Err: fmt.Errorf("ended: the program has started torchrun past fabrun (%s), so that it would run on this host alone and not on the %d hosts", what, l.hosts),
		Hint: "put fabrun in front of torchrun itself, where it is called; or let it be found in PATH behind fabrun's own directory",
	}
}
