package hosts

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ptr(n int) *int { return &n }

func TestPlace(t *testing.T) {
	sameCounts := func(a Allocation, c Counts) map[string]Counts {
		m := map[string]Counts{}
		for _, h := range a.Hosts {
			m[h.Name] = c
		}
		return m
	}
	cores := func(n int) Counts { return Counts{Cores: &n} }
	slurm := func(list, tasks string) Allocation {
		a, err := FromEnv(lookup(map[string]string{"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": list, "SLURM_TASKS_PER_NODE": tasks}), nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, tc := range []struct {
		name     string
		list     string
		alloc    *Allocation
		job      Job
		counts   *Counts
		each     map[string]Counts
		want     string
		hostfile bool
		findings string
	}{
		{
			name: "one rank per host", list: "10.1.4.[1-12]", job: Job{NP: ptr(12)}, hostfile: true,
			want:     "10.1.4.1:1 10.1.4.2:1 10.1.4.3:1 10.1.4.4:1 10.1.4.5:1 10.1.4.6:1 10.1.4.7:1 10.1.4.8:1 10.1.4.9:1 10.1.4.10:1 10.1.4.11:1 10.1.4.12:1",
			findings: "slots.ranks-per-host=12 ranks on 12 hosts: 1 per host",
		},
		{
			name: "multiple of the hosts", list: "n[1-3]", job: Job{NP: ptr(12)}, counts: new(cores(64)), hostfile: true,
			want: "n1:4 n2:4 n3:4", findings: "slots.ranks-per-host=12 ranks on 3 hosts: 4 per host",
		},
		{
			name: "no multiple, equal cores", list: "n[1-3]", job: Job{NP: ptr(13)}, counts: new(cores(64)), hostfile: true,
			want: "n1:5 n2:4 n3:4", findings: "slots.ranks-per-host=13 ranks on 3 hosts: 5 on 1 host, 4 on 2 hosts",
		},
		{
			name: "no multiple, unequal cores", list: "n[1-2]", job: Job{NP: ptr(15)}, each: map[string]Counts{"n1": cores(8), "n2": cores(16)}, hostfile: true,
			want: "n1:5 n2:10", findings: "slots.ranks-per-host=15 ranks on 2 hosts: 5 to 10 per host",
		},
		{
			name: "even share does not fit", list: "n1:2,n2:8", job: Job{NP: ptr(8)}, hostfile: true,
			want: "n1:2 n2:6", findings: "slots.ranks-per-host=8 ranks on 2 hosts: 2 to 6 per host",
		},
		{
			name: "nothing known", list: "n[1-2]", job: Job{NP: ptr(5)}, hostfile: true, want: "n1:3 n2:2",
			findings: "slots.ranks-per-host=5 ranks on 2 hosts: 3 on 1 host, 2 on 1 host",
		},
		{
			name: "fewer ranks than hosts", list: "n[1-4]", job: Job{NP: ptr(2)}, hostfile: true, want: "n1:1 n2:1",
			findings: "slots.idle-hosts=2 ranks for 4 hosts slots.ranks-per-host=2 ranks on 2 hosts: 1 per host",
		},
		{
			name: "more than the slots", list: "n1:2,n2:2", job: Job{NP: ptr(6)}, hostfile: true, want: "n1:2 n2:2",
			findings: "slots.not-enough=-np 6, and --hosts has 4 slots on 2 hosts",
		},
		{
			name: "more than one slot", list: "n1:1", job: Job{NP: ptr(2)}, hostfile: true, want: "n1:1",
			findings: "slots.not-enough=-np 2, and --hosts has 1 slot on 1 host",
		},
		{
			name: "more than the slots, and it is meant", list: "n1:2,n2:2", job: Job{NP: ptr(6), Oversubscribe: true}, hostfile: true, want: "n1:3 n2:3",
			findings: "slots.ranks-per-host=6 ranks on 2 hosts: 3 per host",
		},
		{
			name: "more than the cores", list: "n[1-2]", job: Job{NP: ptr(8)}, counts: new(cores(2)), hostfile: true, want: "n1:2 n2:2",
			findings: "slots.oversubscribed=4 ranks on 2 usable cores",
		},
		{
			name: "more than the cores, on hardware threads", list: "n[1-2]", job: Job{NP: ptr(8), Threads: true}, counts: new(cores(2)), hostfile: true, want: "n1:4 n2:4",
			findings: "slots.oversubscribed=4 ranks on 2 usable cores slots.ranks-per-host=8 ranks on 2 hosts: 4 per host",
		},
		{
			name: "more than the unreserved cores", list: "n[1-2]", job: Job{NP: ptr(4), ReserveCores: 1}, counts: new(cores(2)), hostfile: true, want: "n1:2 n2:2",
			findings: "slots.oversubscribed=2 ranks on 1 usable core slots.ranks-per-host=4 ranks on 2 hosts: 2 per host",
		},
		{
			name: "by cores with reserve", list: "n[1-2]", job: Job{Policy: Policy{By: "cores"}, ReserveCores: 2}, counts: new(cores(64)), hostfile: true,
			want: "n1:62 n2:62", findings: "slots.ranks-per-host=124 ranks on 2 hosts: 62 per host",
		},
		{
			name: "by gpus", list: "n[1-2]", job: Job{Policy: Policy{By: "gpus"}}, counts: &Counts{GPUs: ptr(8)}, hostfile: true,
			want: "n1:8 n2:8", findings: "slots.ranks-per-host=16 ranks on 2 hosts: 8 per host",
		},
		{
			name: "by NUMA nodes", list: "n1", job: Job{Policy: Policy{By: "numa"}}, counts: &Counts{NUMANodes: ptr(4)}, hostfile: true,
			want: "n1:4", findings: "slots.ranks-per-host=4 ranks on 1 host: 4 per host",
		},
		{
			name: "by channels", list: "n[1-2]", job: Job{Policy: Policy{By: "channels", PerChannel: 3}}, counts: &Counts{MemoryChannels: ptr(16), Cores: ptr(64)}, hostfile: true,
			want: "n1:48 n2:48", findings: "slots.ranks-per-host=96 ranks on 2 hosts: 48 per host",
		},
		{
			name: "channels from the profile", list: "n1", job: Job{Policy: Policy{By: "channels", PerChannel: 3}, Channels: ptr(8)}, counts: new(cores(64)), hostfile: true,
			want: "n1:24", findings: "slots.ranks-per-host=24 ranks on 1 host: 24 per host",
		},
		{
			name: "channels above the cores", list: "n1", job: Job{Policy: Policy{By: "channels", PerChannel: 3}}, counts: &Counts{MemoryChannels: ptr(24), Cores: ptr(64)}, hostfile: true,
			want: "n1:64", findings: "slots.capped=72 by channels, 64 usable cores slots.ranks-per-host=64 ranks on 1 host: 64 per host",
		},
		{
			name: "channels unknown", list: "n1:4", job: Job{Policy: Policy{By: "channels", PerChannel: 3}}, hostfile: true,
			want: "n1:4", findings: "slots.unknown=the number of memory channels is not known slots.ranks-per-host=4 ranks on 1 host: 4 per host",
		},
		{
			name: "np beats the policy", list: "n1", job: Job{NP: ptr(2), Policy: Policy{By: "cores"}}, counts: new(cores(64)), hostfile: true,
			want: "n1:2", findings: "slots.ranks-per-host=2 ranks on 1 host: 2 per host",
		},
		{name: "nothing said", list: "n[1-2]", hostfile: true, want: "n1:? n2:?"},
		{
			name: "slurm as given", alloc: new(slurm("n[1-2]", "4(x2)")), job: Job{NP: ptr(8)}, want: "n1:4 n2:4",
			findings: "slots.ranks-per-host=8 ranks on 2 hosts: 4 per host",
		},
		{
			name: "slurm, np spread instead of packed", alloc: new(slurm("n[1-2]", "4(x2)")), job: Job{NP: ptr(2)}, want: "n1:1 n2:1", hostfile: true,
			findings: "slots.ranks-per-host=2 ranks on 2 hosts: 1 per host",
		},
		{
			name: "slurm, never above the allocation", alloc: new(slurm("n1", "4")), job: Job{Policy: Policy{By: "cores"}}, counts: new(cores(64)), want: "n1:4",
			findings: "slots.capped=64 by cores, 4 slots of the allocation slots.ranks-per-host=4 ranks on 1 host: 4 per host",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var a Allocation
			var err error
			if tc.alloc != nil {
				a = *tc.alloc
			} else if a, err = ParseList(tc.list); err != nil {
				t.Fatal(err)
			}
			if tc.counts != nil {
				tc.job.Counts = sameCounts(a, *tc.counts)
			} else {
				tc.job.Counts = tc.each
			}
			p, err := Place(a, tc.job)
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, f := range p.Findings {
				found = append(found, f.ID+"="+f.Seen)
			}
			got := []string{strings.Join(spell(p.Hosts), " "), strings.Join(found, " ")}
			if diff := cmp.Diff([]string{tc.want, tc.findings}, got); diff != "" {
				t.Error(diff)
			}
			if p.Hostfile != tc.hostfile {
				t.Errorf("Hostfile is %v, want %v", p.Hostfile, tc.hostfile)
			}
		})
	}
}

// TestSpreadLaws holds for every np and room: all ranks are placed, nobody gets
// more than its room while the total suffices, and equal hosts differ by one.
func TestSpreadLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		room := make([]*int, 1+r.IntN(20))
		total, equal := 0, true
		for i := range room {
			n := 1 + r.IntN(64)
			if r.IntN(2) == 0 && i > 0 {
				n = *room[0]
			}
			room[i] = &n
			total += n
			equal = equal && n == *room[0]
		}
		np := 1 + r.IntN(2*total)
		ranks := spread(np, room)
		sum, low, high := 0, ranks[0], ranks[0]
		for i, n := range ranks {
			sum += n
			low, high = min(low, n), max(high, n)
			if n < 0 || np <= total && n > *room[i] {
				t.Fatalf("spread(%d) gives host %d of room %d %d ranks", np, i, *room[i], n)
			}
		}
		if sum != np || equal && high-low > 1 {
			t.Fatalf("spread(%d) over %d hosts places %d, from %d to %d", np, len(room), sum, low, high)
		}
	}
}

func TestParsePolicy(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Policy
		bad  bool
	}{
		{in: ""},
		{in: "cores", want: Policy{By: "cores"}},
		{in: "gpus", want: Policy{By: "gpus"}},
		{in: "numa", want: Policy{By: "numa"}},
		{in: "channels:3", want: Policy{By: "channels", PerChannel: 3}},
		{in: "channels", bad: true},
		{in: "channels:0", bad: true},
		{in: "channels:x", bad: true},
		{in: "threads", bad: true},
	} {
		got, err := ParsePolicy(tc.in)
		if (err != nil) != tc.bad || got != tc.want {
			t.Errorf("ParsePolicy(%q) = %v, %v", tc.in, got, err)
		}
	}
}
