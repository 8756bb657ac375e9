// Package slurm is what Slurm calls fabrun for on a compute node: prolog, epilog,
// health check and task prolog, each within a bounded time, with what the node
// remembers between them.
package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"fabrun/envgen"
	"fabrun/launcher/check"
	"fabrun/launcher/exit"
	"fabrun/launcher/eyes"
	"fabrun/launcher/job"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// Defaults of the doors. Slurm gives a prolog MessageTimeout (10 s) in good
// manners, and kills a health check after 60 s.
const (
	State    = "/var/lib/fabrun"
	Profiles = "/etc/fabrun/profiles"
	Deadline = 5 * time.Second
	Cache    = time.Minute
)

// Node is the node on which Slurm calls fabrun. Of the call it takes the machine,
// the profile, the environment and the streams.
type Node struct {
	*job.Call
	State    string // the directory in which the node remembers
	Name     string // of the node; "" SLURMD_NODENAME, or the host's
	Ports    int    // active fabric ports when it is healthy; 0 not known
	Cache    time.Duration
	Deadline time.Duration
	Scontrol string // the program; "" where packages put it
	Syslog   string // the socket; "" none
}

// Door does what Slurm calls fabrun for, called verb. Whatever goes wrong inside
// fabrun is said on standard error and in the system's log, and is no error here:
// every other status than 0 drains a node or cancels a task.
func (n Node) Door(ctx context.Context, verb string, work func(ctx context.Context) error) error {
	defer n.log(verb)()
	ctx, cancel := context.WithTimeout(ctx, n.Deadline)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("internal error: %v", p)
			}
		}()
		done <- work(ctx)
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = fmt.Errorf("gave up after %v", n.Deadline)
	}
	if errors.Is(err, errNodeFault) {
		return exit.ErrFindings
	}
	if err != nil {
		OwnFault(n.Stderr, err)
	}
	return nil
}

// WrongCall is Door for a call that is wrong.
func (n Node) WrongCall(verb string, err error) {
	defer n.log(verb)()
	OwnFault(n.Stderr, err)
}

// log lets everything that is said on standard error be said in the
// system's log too, until the function that it returns is called.
func (n Node) log(verb string) func() {
	about := "slurm " + verb
	if job := n.job(); job != "" {
		about += ": job " + job
	}
	stderr, log := n.Stderr, openSystemLog(n.Syslog, about)
	n.Stderr = report.Own(both{stderr, log}, n.Env)
	return func() {
		n.Stderr = stderr
		log.close()
	}
}

// errNodeFault says that the node, and not fabrun, is at fault. What there was
// to say has been said.
var errNodeFault = errors.New("fault of the node")

// OwnFault says on w what is wrong with a call of Slurm's.
func OwnFault(w io.Writer, err error) {
	fmt.Fprintf(w, "%v: fabrun's own trouble, not the node's: exit status 0\n", err)
}

// Prolog looks at the node before a job: is its fabric as it was?
func (n Node) Prolog(ctx context.Context) error {
	store, err := n.openStore()
	if err != nil {
		// Without a place to remember, the node can still be looked at.
		OwnFault(n.Stderr, err)
	}
	job := n.job()
	if job != "" {
		defer store.saveJob(job, report.NodeJob{Job: job, Started: time.Now(), First: eyes.NewMeter(n.name()).Look(time.Now(), true)}, n.Stderr)
	}
	key := fmt.Sprintf("%s %s %d", n.Version, n.Profile, n.Ports)
	if store.cachedGood(key, n.Cache, time.Now()) {
		return nil
	}
	look, err := n.look(ctx, store)
	if err != nil {
		return err
	}
	for _, f := range look.notes {
		fmt.Fprintf(n.Stderr, "%s: %s %s: %s\n", f.Severity, f.ID, f.Subject, f.Seen)
	}
	if len(look.faults) == 0 {
		store.saveCache(key, time.Now(), n.Stderr)
		store.forget(faultFile)
		return nil
	}
	store.saveFault(faultReason(look.faults), n.Stderr)
	fmt.Fprintf(n.Stderr, "%s: %s\n", n.name(), faultReason(look.faults))
	for _, f := range look.faults {
		fmt.Fprintf(n.Stderr, "%s: %s: %s, wanted %s\n        %s\n", f.ID, f.Subject, f.Seen, f.Wanted, f.Hint)
	}
	return errNodeFault
}

// Epilog compares the counters after a job with those before it.
func (n Node) Epilog(_ context.Context) error {
	job := n.job()
	if job == "" {
		return errors.New("SLURM_JOB_ID names no job")
	}
	store, err := openNodeStore(n.State)
	if err != nil {
		return err
	}
	rec, err := store.loadJob(job)
	if err != nil {
		return fmt.Errorf("what the prolog noted of job %s: %w", job, err)
	}
	now := time.Now()
	last := eyes.NewMeter(n.name()).Look(now, true)
	traffic := watch.Traffic(rec.First, last, nil)
	verdict := watch.JudgeCounters(watch.CounterJob{Hosts: []string{last.Host}}, []watch.HostTraffic{traffic})
	rec.Ended, rec.Traffic, rec.Events = &now, &traffic, verdict.Events
	for _, e := range rec.Events {
		fmt.Fprintf(n.Stderr, "job %s: %s: %s\n", job, e.Severity, e.Text)
	}
	store.saveJob(job, rec, n.Stderr)
	return nil
}

// Health drains the node for a fault, and resumes it after.
func (n Node) Health(ctx context.Context) error {
	store, err := n.openStore()
	if err != nil {
		return err
	}
	look, err := n.look(ctx, store)
	if err != nil {
		return err
	}
	if n.From != "" {
		if len(look.faults) > 0 {
			fmt.Fprintf(n.Stderr, "%s: %s\n        it is a snapshot: this node is left as it is\n", n.From, faultReason(look.faults))
		}
		return nil
	}
	scontrol, err := findScontrol(n.Scontrol)
	if err != nil {
		return err
	}
	node := n.name()
	if !plainNode(node) {
		return fmt.Errorf("%q is no node name", node)
	}
	out, err := exec.CommandContext(ctx, scontrol, "--oneliner", "show", "node", node).Output()
	if err != nil {
		return fmt.Errorf("%s show node %s: %w", scontrol, node, err)
	}
	good := store.countGood(len(look.faults) == 0, n.Stderr)
	state, noted := ParseNodeState(string(out)), store.fault()
	var args []string
	action := decideHealth(state, noted, look.faults, good)
	switch action {
	case healthDrain:
		args = []string{"update", "NodeName=" + node, "State=DRAIN", "Reason=" + cmp.Or(faultReason(look.faults), noted)}
	case healthResume:
		args = []string{"update", "NodeName=" + node, "State=RESUME"}
	default:
		return nil
	}
	fmt.Fprintf(n.Stderr, "scontrol %s\n", strings.Join(args, " "))
	if text, err := exec.CommandContext(ctx, scontrol, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", scontrol, strings.Join(args, " "), err, bytes.TrimSpace(text))
	}
	store.forget(faultFile)
	return nil
}

// scontrolPlaces is where packages put it: a health check has no PATH.
var scontrolPlaces = []string{"/usr/bin/scontrol", "/usr/local/bin/scontrol", "/opt/slurm/bin/scontrol", "/usr/local/slurm/bin/scontrol", "/cm/shared/apps/slurm/current/bin/scontrol"}

func findScontrol(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	for _, p := range scontrolPlaces {
		if st, err := os.Stat(p); err == nil && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("no scontrol in %s; name it by --scontrol", strings.Join(scontrolPlaces, ", "))
}

// job is the job's number, "" where there is none that can name a file.
func (n Node) job() string {
	for _, name := range []string{"SLURM_JOB_ID", "SLURM_JOBID"} {
		if v, ok := n.Getenv(name); ok && v != "" && len(v) < 20 && strings.Trim(v, "0123456789") == "" {
			return v
		}
	}
	return ""
}

func (n Node) name() string {
	if n.Name != "" {
		return n.Name
	}
	if v, ok := n.Getenv("SLURMD_NODENAME"); ok && plainNode(v) {
		return v
	}
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}

// plainNode reports whether a name can be handed to scontrol.
func plainNode(s string) bool {
	return s != "" && len(s) <= 64 && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == ""
}

// nodeLook is what one look at this node says.
type nodeLook struct {
	faults []finding.Finding // certain: reasons to take the node out
	notes  []finding.Finding // everything else of severity warning or error
	ports  int               // active on the fabric
}

// look judges this node by /etc/fabrun alone and remembers its ports.
func (n Node) look(ctx context.Context, store *nodeStore) (nodeLook, error) {
	var p profiles.Profile
	if n.Profile != "" {
		var err error
		if p, err = profiles.Load(profiles.Dirs{Profiles}, n.Profile); err != nil {
			return nodeLook{}, err
		}
	}
	h, err := n.Host(ctx)
	if err != nil {
		return nodeLook{}, err
	}
	res := envgen.Compute(envgen.Input{Hosts: []topology.Host{h}, Profile: p})
	now := fabricPorts(h, res)
	base := store.baseline()
	look := nodeLook{faults: nodeFaults(base, now, h, p, n.Ports)}
	var ports []string
	for _, s := range now {
		if s.Active {
			ports = append(ports, s.Port)
		}
	}
	look.ports = len(ports)
	for _, f := range check.HostFindings(h, p, check.Job{Ports: ports}) {
		// The limits are this daemon's, not a job's.
		if f.Severity != finding.Note && !strings.HasPrefix(f.ID, "limits.") {
			look.notes = append(look.notes, f)
		}
	}
	if len(look.faults) == 0 {
		store.saveBaseline(base, now, n.Stderr)
	}
	return look, nil
}
