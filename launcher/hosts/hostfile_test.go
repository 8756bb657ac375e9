package hosts

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseHostfile(t *testing.T) {
	for _, tc := range []struct {
		name    string
		dialect *Syntax
		text    string
		want    string // name:slots …
		finding string // ID, "" none
	}{
		{"names", AnySyntax, "n1\nn2\n", "n1:? n2:?", ""},
		{"no line end", AnySyntax, "n1\nn2", "n1:? n2:?", ""},
		{"windows line ends", AnySyntax, "n1 slots=2\r\nn2 slots=2\r\n", "n1:2 n2:2", ""},
		{"comments and blank lines", AnySyntax, "# all\n\n  n1 # first\n// second\nn2 /* no\nn3 slots=2 */\nn4\n", "n1:? n2:? n4:?", ""},
		{"expressions", AnySyntax, "n[01-03] slots=4\nm[1-2]:8,k\n", "n01:4 n02:4 n03:4 m1:8 m2:8 k:?", ""},
		{"each tool's slots", AnySyntax, "a slots=2\nb:3\nc count = 4\nd max_slots=5\n10.0.0.1:6\n", "a:2 b:3 c:4 d:5 10.0.0.1:6", ""},
		{"a line per slot", AnySyntax, "n1\nn1\nn2\n", "n1:2 n2:1", ""},
		{"ipv6", AnySyntax, "fd00::1\n[fd00::2]:4\nfd00::3 slots=2\n", "fd00::1:? fd00::2:4 fd00::3:2", ""},
		{"several on a line", Plain, "n1 n2,n3\nn[4-5]\n", "n1:? n2:? n3:? n4:? n5:?", ""},
		{"open mpi keywords", OpenMPI, "a slots=2 max-slots=4\nb cpu = 3\nc count=1 port=2222\nme@d slots=2\ne username=me slots=1\n", "a:2 b:3 c:1 d:2 e:1", ""},
		{"open mpi without slots", OpenMPI, "localhost\n", "localhost:?", ""},
		{"open mpi repeats add", OpenMPI, "n1 slots=2\nn1 slots=3\n", "n1:5", ""},
		{"open mpi address with colon", OpenMPI, "10.0.0.1:4\n", "10.0.0.1:?", "hosts.openmpi-colon"},
		{"open mpi excludes", OpenMPI, "n1\nn2\n^n1\n", "n2:?", ""},
		{"hydra", MPICH, "n1:2 binding=core user=me\nn2\n", "n1:2 n2:?", ""},
		{"intel machinefile", Intel, "n1:2\nn2:2\n", "n1:2 n2:2", ""},
		{"intel repeats", Intel, "n1\nn1\nn2\n", "n1:2 n2:1", "hosts.intel-repeated"},
		{"deepspeed", DeepSpeed, "# all\nworker-1 slots=4\nworker-2 slots=4\n", "worker-1:4 worker-2:4", ""},
		{"mpi operator, open mpi", AnySyntax, "job-worker-0.job.ns.svc slots=8\njob-worker-1.job.ns.svc slots=8\n", "job-worker-0.job.ns.svc:8 job-worker-1.job.ns.svc:8", ""},
		{"mpi operator, intel", AnySyntax, "job-worker-0.job.ns.svc:8\njob-worker-1.job.ns.svc:8\n", "job-worker-0.job.ns.svc:8 job-worker-1.job.ns.svc:8", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := ParseHostfile([]byte(tc.text), tc.dialect)
			if err != nil {
				t.Fatal(err)
			}
			found := ""
			for _, f := range a.Findings {
				found += f.ID
			}
			if diff := cmp.Diff([]string{tc.want, tc.finding}, []string{strings.Join(spell(a.Hosts), " "), found}); diff != "" {
				t.Error(diff)
			}
		})
	}
	a, err := ParseHostfile([]byte("me@d port=2222 max_slots=3\n"), OpenMPI)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Host{{Name: "d", User: "me", Port: ptr(2222), Slots: ptr(3), MaxSlots: ptr(3)}}, a.Hosts); diff != "" {
		t.Error(diff)
	}
}

func TestParseHostfileErrors(t *testing.T) {
	for _, tc := range []struct {
		name    string
		dialect *Syntax
		text    string
		want    string
	}{
		{"empty", AnySyntax, "", "no hosts"},
		{"comments only", AnySyntax, "# nothing\n\n", "no hosts"},
		{"slots not a number", AnySyntax, "n1\nn2 slots=many\n", `line 2: slots of "n2": "many" is not a number of slots (1 to 1048576)`},
		{"zero slots", OpenMPI, "n1 slots=0\n", `line 1: slots of "n1": "0" is not a number of slots (1 to 1048576)`},
		{"bad bracket", AnySyntax, "n1\nn[1-\n", `line 2: host list "n[1-": character 2: '[' is never closed`},
		{"open mpi name with colon", OpenMPI, "n1:2\n", `line 1: Open MPI refuses "n1:2": write "n1 slots=2"`},
		{"open mpi unknown word", OpenMPI, "n1 slots=2 gpus=4\n", `line 1: Open MPI does not know "gpus=4" (slots are written slots=N)`},
		{"open mpi bare number", OpenMPI, "n1 4\n", `line 1: "4" behind host "n1": wanted KEY=VALUE (slots are written slots=N)`},
		{"open mpi rankfile", OpenMPI, "rank 0=n1 slot=0\n", `line 1: "rank" begins a rankfile, which is not a hostfile`},
		{"open mpi maximum below slots", OpenMPI, "n1 slots=4 max_slots=2\n", `line 1: max_slots=2 is below slots=4 of "n1"`},
		{"open mpi relative", OpenMPI, "+x\n", `line 1: "+x": wanted +nINDEX, +e or +e:COUNT`},
		{"hydra with slots=", MPICH, "n1 slots=2\n", `line 1: MPICH's Hydra does not know "slots=2" (slots are written host:N)`},
		{"hydra with ifname", MPICH, "n1:2 ifname=eth0\n", `line 1: MPICH's Hydra does not know "ifname=eth0" (slots are written host:N)`},
		{"deepspeed without slots", DeepSpeed, "n1\n", `line 1: "n1" has no slots: deepspeed wants "n1 slots=N"`},
		{"deepspeed twice", DeepSpeed, "n1 slots=1\nn1 slots=1\n", `"n1" is there twice: deepspeed wants each host once`},
		{"deepspeed colon", DeepSpeed, "n1:4\n", `line 1: deepspeed refuses "n1:4": write "n1 slots=4"`},
		{"option", AnySyntax, "-oProxyCommand=id\n", `line 1: "-oProxyCommand=id" is not a host name`},
		{"option in plain", Plain, "-x\n", `line 1: host list "-x": character 1: a host name cannot begin with '-'`},
		{"shell", AnySyntax, "n1;id slots=2\n", `line 1: "n1;id" is not a host name`},
		{"user as option", OpenMPI, "-l@n1\n", `line 1: "-l" is not a user name`},
		{"port", OpenMPI, "n1 port=99999\n", `line 1: "99999" is not a port`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseHostfile([]byte(tc.text), tc.dialect)
			if err == nil || err.Error() != tc.want {
				t.Errorf("\n got %v\nwant %s", err, tc.want)
			}
		})
	}
	if _, err := ParseHostfile(nil, AnySyntax); !errors.Is(err, ErrNoHosts) {
		t.Errorf("an empty file: %v is not ErrNoHosts", err)
	}
}

func TestFormat(t *testing.T) {
	a := Allocation{Hosts: []Host{
		{Name: "n1", Slots: ptr(4), MaxSlots: ptr(8), User: "me", Port: ptr(22)},
		{Name: "10.1.4.2", Slots: ptr(2)},
	}}
	for _, tc := range []struct {
		dialect *Syntax
		want    string
	}{
		{OpenMPI, "n1 slots=4 max_slots=8 username=me port=22\n10.1.4.2 slots=2\n"},
		{MPICH, "n1:4 user=me\n10.1.4.2:2\n"},
		{Intel, "n1:4 user=me\n10.1.4.2:2\n"},
		{DeepSpeed, "n1 slots=4\n10.1.4.2 slots=2\n"},
		{Horovod, "n1 slots=4\n10.1.4.2 slots=2\n"},
		{Plain, "n1\n10.1.4.2\n"},
	} {
		got, err := Format(a, tc.dialect)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.dialect.Name, diff)
		}
		// What is written is read back by the same tool, but for what it has no word for.
		back, err := ParseHostfile([]byte(got), tc.dialect)
		if err != nil {
			t.Errorf("%s does not read its own file: %v", tc.dialect.Name, err)
		} else if tc.dialect != Plain && !cmp.Equal(spell(a.Hosts), spell(back.Hosts)) {
			t.Errorf("%s: %v came back as %v", tc.dialect.Name, spell(a.Hosts), spell(back.Hosts))
		}
	}
	for _, tc := range []struct {
		name    string
		host    Host
		dialect *Syntax
		want    string
	}{
		{"no slots for deepspeed", Host{Name: "n1"}, DeepSpeed, `"n1": deepspeed wants a number of slots for every host`},
		{"ipv6 for hydra", Host{Name: "fd00::1"}, MPICH, `"fd00::1": MPICH's Hydra cannot hold IPv6 addresses in a hostfile`},
		{"a name with a line end", Host{Name: "n1\nn2"}, OpenMPI, `"n1\nn2" is not a host name`},
	} {
		_, err := Format(Allocation{Hosts: []Host{tc.host}}, tc.dialect)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %s", tc.name, err, tc.want)
		}
	}
	if _, err := Format(Allocation{}, OpenMPI); !errors.Is(err, ErrNoHosts) {
		t.Errorf("no hosts: %v", err)
	}
}

func TestNarrow(t *testing.T) {
	base, err := FromEnv(lookup(map[string]string{"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-4]", "SLURM_TASKS_PER_NODE": "4(x4)"}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, hostfile, want, err string }{
		{"some", "n2\nn3\n", "n2:4 n3:4", ""},
		{"fewer slots", "n2 slots=1\n", "n2:1", ""},
		{"never more slots", "n2 slots=99\n", "n2:4", ""},
		{"the manager's spelling", "n2.cluster.local\n", "n2:4", ""},
		{"excluded", "^n1\n^n2\n", "n3:4 n4:4", ""},
		{"by position", "+n0\n+n3\n", "n1:4 n4:4", ""},
		{"all that are free", "n2\n+e\n", "n2:4 n1:4 n3:4 n4:4", ""},
		{"some that are free", "+n0\n+e:2\n", "n1:4 n2:4 n3:4", ""},
		{"stranger", "n2\nm1\nm2\n", "", `--hostfile: not in the slurm allocation: "m[1-2]" (it has "n[1-4]")`},
		{"position beyond", "+n4\n", "", `--hostfile: +n4: the slurm allocation has only 4 hosts`},
		{"nothing left", "^n1\n^n2\n^n3\n^n4\n", "", `--hostfile: no hosts left of the slurm allocation`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sel, err := ParseHostfile([]byte(tc.hostfile), OpenMPI)
			if err != nil {
				t.Fatal(err)
			}
			sel.Source = "--hostfile"
			got, err := Narrow(base, sel)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("\n got %v\nwant %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, strings.Join(spell(got.Hosts), " ")); diff != "" {
				t.Error(diff)
			}
			if got.Manager != "slurm" || got.JobID != "7" {
				t.Errorf("the manager is lost: %q %q", got.Manager, got.JobID)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name    string
		list    string
		dialect *Syntax
		want    string
	}{
		{"domains that Open MPI strips", "n1.a.org,n1.b.org,n2.a.org", OpenMPI, "hosts.fqdn-merged"},
		{"different names", "n1.a.org,n2.a.org", OpenMPI, ""},
		{"addresses are not cut", "10.0.0.1,10.0.0.2", OpenMPI, ""},
		{"domains elsewhere", "n1.a.org,n1.b.org", MPICH, ""},
		{"ipv6", "fd00::1", MPICH, "hosts.hydra-ipv6"},
		{"ipv6 elsewhere", "fd00::1", OpenMPI, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := ParseList(tc.list)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range Check(a, tc.dialect) {
				got += f.ID
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzParseHostfile(f *testing.F) {
	for _, s := range []string{"n1 slots=2\n", "n[1-3]:4\n", "/* a */ n1\n", "me@n1 port=22\n", "^n1\n+e:2\n", "fd00::1\n", "[fd00::1]:4", "a slots = 3 max_slots=4"} {
		for _, d := range append([]*Syntax{AnySyntax}, Syntaxes...) {
			f.Add([]byte(s), d.Name)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, d string) {
		syntax := SyntaxNamed(d)
		if syntax == nil {
			syntax = AnySyntax
		}
		a, err := ParseHostfile(text, syntax)
		if err != nil || len(a.Hosts) == 0 {
			return
		}
		// Whatever was read can be written and read back.
		out, err := Format(a, OpenMPI)
		if err != nil {
			t.Fatalf("%q cannot be written: %v", text, err)
		}
		back, err := ParseHostfile([]byte(out), OpenMPI)
		if err != nil || !cmp.Equal(spell(a.Hosts), spell(back.Hosts)) {
			t.Fatalf("%q came back as %v, %v", out, spell(back.Hosts), err)
		}
	})
}

func TestParseDashHost(t *testing.T) {
	for list, want := range map[string]string{
		"n1,n2":          "n1=1 n2=1",
		"n1,n1,n2":       "n1=2 n2=1",
		"n1:4,n2:2,n1":   "n1=5 n2=2",
		"n1:*,n2:auto":   "n1=? n2=?",
		" n1 , 10.1.4.1": "n1=1 10.1.4.1=1",
		"+n0,n1":         "n1=1 +n0",
		"+e:2":           "+e:2",
		"":               "error",
		"n1:0":           "error",
		"n1:x":           "error",
		"-x":             "error",
		"+x":             "error",
		"a;b":            "error",
	} {
		a, err := ParseDashHost(list)
		var got []string
		for _, h := range a.Hosts {
			slots := "?"
			if h.Slots != nil {
				slots = strconv.Itoa(*h.Slots)
			}
			got = append(got, h.Name+"="+slots)
		}
		got = append(got, a.Relative...)
		if err != nil {
			got = []string{"error"}
		}
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%q: %s, want %s", list, g, want)
		}
	}
}

func FuzzParseDashHost(f *testing.F) {
	f.Add("n1,n2:4,n3:*,+e:2")
	f.Fuzz(func(t *testing.T, list string) {
		a, err := ParseDashHost(list)
		if err == nil && len(a.Hosts) == 0 && len(a.Relative) == 0 {
			t.Error("no hosts and no error")
		}
	})
}
