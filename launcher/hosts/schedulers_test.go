package hosts

import (
	"errors"
	"strings"
	"testing"
)

// TestSchedulersAreWhole: each fills in what belongs together, speaks for nobody
// else, and says nothing where nothing is set.
func TestSchedulersAreWhole(t *testing.T) {
	nothing := environment{func(string) (string, bool) { return "", false }, func(string) ([]byte, error) { return nil, errors.New("no file") }}
	owner := map[string]string{}
	for i, s := range Schedulers {
		miss := func(what string, missing bool) {
			if missing {
				t.Errorf("%s: %s", s.Name, what)
			}
		}
		miss("a name of its own", s.Name == "" || SchedulerNamed(s.Name) != Schedulers[i])
		miss("from", s.from == nil)
		miss("Title", s.Title == "" && s.Name != "FABRUN_HOSTS")
		miss("JobID, for a manager's jobs have numbers", s.Manager && s.JobID == nil)
		miss("Manager, for it has a way to the nodes", s.Transport != "" && !s.Manager)
		miss("Step: ID and Prefix", s.Step != nil && (s.Step.ID == "" || s.Step.Prefix == ""))
		for _, n := range s.Local {
			miss("Local: Rank", n.Rank == "")
		}
		for _, name := range append(append(strings.Fields(s.TaskVars), s.JobID...), s.file, s.NodeName) {
			if other := owner[name]; name != "" && other != "" && other != s.Name {
				t.Errorf("%s is %s's and %s's", name, other, s.Name)
			}
			owner[name] = s.Name
		}
		if _, ok, err := s.from(nothing, s); ok || err != nil {
			t.Errorf("%s speaks (%v, %v) where nothing is set", s.Name, ok, err)
		}
	}
}
