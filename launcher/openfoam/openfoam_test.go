package openfoam

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

const header = `/*--------------------------------*- C++ -*----------------------------------*\
| =========                 |
\*---------------------------------------------------------------------------*/
FoamFile
{
    version     2.0;
    format      ascii;
    class       dictionary;
    object      decomposeParDict;
}
// * * * * * //
`

func TestReadDecomposition(t *testing.T) {
	for _, tc := range []struct {
		name, text, want string
	}{
		{"simple", "numberOfSubdomains 4;\nmethod simple;\nsimpleCoeffs\n{\n    n (2 2 1);\n    delta 0.001;\n}\n", "4 simple [2 2 1] line 12"},
		{"old coefficients around another method", "numberOfSubdomains  96;\nmethod scotch;\nsimpleCoeffs { n (1 2 3); }\n", "96 scotch [] line 12"},
		{"coeffs", "method hierarchical;\nnumberOfSubdomains 8;\ncoeffs { n ( 4 2 1 ); order xyz; }", "8 hierarchical [4 2 1] line 13"},
		{"decomposer", "numberOfSubdomains 6;\ndecomposer hierarchical;\ndistributor ptscotch;\nhierarchicalCoeffs { n (3 2 1); }", "6 hierarchical [3 2 1] line 12"},
		{"commented out", "// numberOfSubdomains 4;\n/* numberOfSubdomains 5;\n*/ numberOfSubdomains 6; // 7\n", "6  [] line 14"},
		{"last one counts", "numberOfSubdomains 4;\nnumberOfSubdomains 5;", "5  [] line 13"},
		{"macro", "nx 4;\nny 3;\nnumberOfSubdomains $nx;", "4  [] line 14"},
		{"macro in braces", "np { all 12; }\nnumberOfSubdomains ${np.all};", "12  [] line 13"},
		{"macro from the top", "n 3; simpleCoeffs { n ($:x 1 1); } x 3; numberOfSubdomains $n; method simple;", "3 simple [3 1 1] line 12"},
		{"macro from outside", "#include \"caseSettings\"\nnumberOfSubdomains $nCores;", "? $nCores is not set in this file line 13"},
		{"macro that refers to itself", "a $b; b $a; numberOfSubdomains $a;", "? $a refers to itself line 12"},
		{"computed", "numberOfSubdomains #calc \"2*2\";", "? #calc is computed by OpenFOAM line 12"},
		{"evaluated", "numberOfSubdomains #eval{ 2*2 };", "? #eval is computed by OpenFOAM line 12"},
		{"from an include", "#includeEtc \"caseDicts/dec\" // all\nmethod scotch;", "? it may come from #includeEtc \"caseDicts/dec\", which is not read line 0"},
		{"absent", "method scotch;", "?  line 0"},
		{"not whole", "numberOfSubdomains 4.5;", `? numberOfSubdomains is "4.5", not a whole number line 12`},
		{"zero", "numberOfSubdomains 0;", "? numberOfSubdomains is 0 line 12"},
		{"distributed", "numberOfSubdomains 2; distributed yes; roots 1 ( \"/scratch/x;y\" );", "2  [] line 12 distributed"},
		{"macro made of macros", "_a { b 1; }\n${_${FOAM_EXECUTABLE}};\n#remove _a\nnumberOfSubdomains 2;", "2  [] line 15"},
		{
			"odd but right", "numberOfSubdomains\n  2\n;\nconstraints { patches { type preservePatches; patches (\".*\" a|b); enabled true; } }\n\"(U|k).*\" 1; div(phi,U) Gauss linear; x #codeStream { code #{ if (a) { b; } #}; };",
			"2  [] line 12",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := ReadDecomposition([]byte(header + tc.text))
			if err != nil {
				t.Fatal(err)
			}
			got := "? " + d.Why
			if d.Subdomains != nil {
				got = fmt.Sprintf("%d %s %v", *d.Subdomains, d.Method, d.N)
			}
			// The header takes 11 lines.
			got += fmt.Sprintf(" line %d", d.Line)
			if d.Distributed {
				got += " distributed"
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"no semicolon at the end", "a 1;\nb 2\n", `line 2: "b" has no ';' behind it`},
		{"no semicolon before a brace", "a\n{\n b 2\n}\n", `line 4: "}" in the value of "b", which begins on line 3: is a ';' missing?`},
		{"open brace", "a\n{\n b 2;\n", `line 4: a '{' is never closed`},
		{"stray brace", "a 1;\n}\n", `line 2: "}" where a keyword was wanted`},
		{"open comment", "a 1; /* b", `line 1: a comment /* is never closed`},
		{"open string", "a \"b;", `line 1: a '"' is never closed`},
		{"open list", "a (1 2;\n", `line 1: "a" has no ';' behind it`},
		{"wrong bracket", "a (1 2];\n", `line 1: "]" in the value of "a", which begins on line 1: is a ';' missing?`},
		{"a list and no dictionary", "3\n(\na\n)\n", `line 1: "3" has no ';' behind it`},
		{"deep", strings.Repeat("a {", 100), "line 1: more than 64 dictionaries inside each other"},
		{"verbatim", "#{ x #}", "line 1: #{ without a keyword before it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.text))
			if err == nil || err.Error() != tc.want {
				t.Errorf("\n got %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestReadControl(t *testing.T) {
	c, err := ReadControl([]byte(header + "application     simpleFoam;\nstartFrom latestTime;\nfunctions\n{\n #includeFunc residuals\n f1 { libs (\"libx.so\"); }\n}\n"))
	if err != nil || c.Application != "simpleFoam" {
		t.Errorf("application is %q, %v", c.Application, err)
	}
}

func TestCountProcessors(t *testing.T) {
	for _, tc := range []struct {
		names string
		want  Processors
	}{
		{"0 constant system", Processors{Gap: -1}},
		{"processor0 processor1 processor2", Processors{Count: 3, Gap: -1}},
		{"processor0 processor2 processor10", Processors{Count: 3, Gap: 1}},
		{"processors4", Processors{Count: 4, Collated: true, Gap: -1}},
		{"processors16_0-7 processors16_8-15", Processors{Count: 16, Collated: true, Gap: -1}},
		{"processor01 processorX processor", Processors{Gap: -1}},
	} {
		if diff := cmp.Diff(tc.want, CountProcessors(strings.Fields(tc.names))); diff != "" {
			t.Errorf("%s: %s", tc.names, diff)
		}
	}
}

func TestExamine(t *testing.T) {
	env := map[string]string{"WM_PROJECT_DIR": "/opt/OpenFOAM", "WM_MPLIB": "SYSTEMOPENMPI", "FOAM_MPI": "openmpi-system", "HOME": "/root", "PATH": "/bin"}
	with := func(add map[string]string) map[string]string {
		out := map[string]string{}
		for _, m := range []map[string]string{env, add} {
			for k, v := range m {
				out[k] = v
			}
		}
		return out
	}
	decomposed := func(n int) Case {
		return Case{Dir: ".", DictPath: "system/decomposeParDict", Decomposition: &Decomposition{Subdomains: &n, Method: "scotch", Line: 18}, Processors: &Processors{Count: n, Gap: -1}}
	}
	with10 := func(c Case) Case {
		c.Processors.Times = "processor0/10"
		return c
	}
	solver := []string{"simpleFoam", "-parallel"}
	for _, tc := range []struct {
		name string
		c    Case
		run  Run
		want string
	}{
		{"all right", decomposed(4), Run{Program: solver, NP: 4, Launcher: "openmpi", Env: env}, ""},
		{"all right through foamExec", decomposed(4), Run{Program: []string{"foamExec", "simpleFoam", "-parallel"}, NP: 4, Env: env}, ""},
		{
			"ranks differ", decomposed(4),
			Run{Program: solver, NP: 8, Env: env},
			"error openfoam.subdomains numberOfSubdomains 4, and 8 ranks | -np 4; or, for 8 ranks, foamDictionary -entry numberOfSubdomains -set 8 system/decomposeParDict, then decomposePar -force, which deletes the parts that are there",
		},
		{
			"ranks differ, and the parts hold results", with10(decomposed(4)),
			Run{Program: solver, NP: 8, Env: env},
			"error openfoam.subdomains numberOfSubdomains 4, and 8 ranks | -np 4; or, for 8 ranks, foamDictionary -entry numberOfSubdomains -set 8 system/decomposeParDict, then reconstructPar, which saves the results in the parts (processor0/10), and decomposePar -force, which deletes them",
		},
		{
			"ranks differ, and nothing is decomposed yet",
			Case{Dir: ".", DictPath: "d", Decomposition: &Decomposition{Subdomains: ptr(4)}, Processors: &Processors{Gap: -1}},
			Run{Program: solver, NP: 8, Env: env},
			"error openfoam.subdomains numberOfSubdomains 4, and 8 ranks | -np 4; or, for 8 ranks, foamDictionary -entry numberOfSubdomains -set 8 d, then decomposePar\n" +
				"error openfoam.processors no processor directories | decomposePar",
		},
		{
			"the dictionary was changed after decomposePar",
			Case{Dir: ".", DictPath: "d", Decomposition: &Decomposition{Subdomains: ptr(4)}, Processors: &Processors{Count: 8, Gap: -1, Times: "processor0/10"}},
			Run{Program: solver, NP: 8, Env: env},
			"error openfoam.subdomains numberOfSubdomains 4, and 8 ranks | foamDictionary -entry numberOfSubdomains -set 8 d: the parts that are there fit",
		},
		{
			"the dictionary asks for what is not there",
			Case{Dir: ".", DictPath: "d", Decomposition: &Decomposition{Subdomains: ptr(8)}, Processors: &Processors{Count: 4, Gap: -1, Times: "processor0/10"}},
			Run{Program: solver, NP: 8, Env: env},
			"error openfoam.processors 4 processor directories | -np 4; or, for 8 ranks, numberOfSubdomains 8 in d, then reconstructPar, which saves the results in the parts (processor0/10), and decomposePar -force, which deletes them",
		},
		{
			"another case directory", decomposed(4),
			Run{Program: []string{"simpleFoam", "-case", "run1", "-parallel"}, NP: 8, Env: env},
			"error openfoam.subdomains numberOfSubdomains 4, and 8 ranks | -np 4; or, for 8 ranks, foamDictionary -entry numberOfSubdomains -set 8 system/decomposeParDict, then decomposePar -force -case run1, which deletes the parts that are there",
		},
		{"no -parallel", decomposed(4), Run{Program: []string{"simpleFoam"}, NP: 4, Env: env}, "error openfoam.parallel 4 ranks and no -parallel | simpleFoam -parallel"},
		{
			"-parallel alone", decomposed(4),
			Run{Program: solver, NP: 1, Env: env},
			"error openfoam.parallel -parallel with one rank | leave -parallel out, or start more ranks",
		},
		{"serial run", Case{Dir: ".", Processors: &Processors{Gap: -1}}, Run{Program: []string{"simpleFoam"}, NP: 1, Env: env}, ""},
		{
			"serial program", decomposed(4),
			Run{Program: []string{"decomposePar"}, NP: 4, Env: env},
			"error openfoam.parallel decomposePar with 4 ranks | start it without mpirun",
		},
		{
			"not decomposed",
			Case{Dir: ".", DictPath: "d", Decomposition: &Decomposition{Subdomains: ptr(4)}, Processors: &Processors{Gap: -1}},
			Run{Program: solver, NP: 4, Env: env},
			"error openfoam.processors no processor directories | decomposePar",
		},
		{
			"a part is missing",
			Case{Dir: ".", DictPath: "d", Decomposition: &Decomposition{Subdomains: ptr(4)}, Processors: &Processors{Count: 3, Gap: 2}},
			Run{Program: solver, NP: 4, Env: env},
			"error openfoam.processors processor2 is missing, and later ones are there | bring processor2 back; without it, from the whole case: decomposePar -force, which deletes the parts that are there",
		},
		{"parts elsewhere", Case{Dir: ".", DictPath: "d", Decomposition: &Decomposition{Subdomains: ptr(4), Distributed: true}, Processors: &Processors{Gap: -1}}, Run{Program: solver, NP: 4, Env: env}, ""},
		{"redistributePar makes its own", Case{Dir: ".", DictPath: "d", Decomposition: &Decomposition{Subdomains: ptr(4)}, Processors: &Processors{Gap: -1}}, Run{Program: []string{"redistributePar", "-decompose", "-parallel"}, NP: 4, Env: env}, ""},
		{
			"subdomains unknown",
			Case{Dir: ".", DictPath: "d", Decomposition: &Decomposition{Why: "$n is not set in this file"}, Processors: &Processors{Count: 4, Gap: -1}},
			Run{Program: solver, NP: 4, Env: env},
			"warning openfoam.subdomains $n is not set in this file | see that it equals -np",
		},
		{
			"no dictionary",
			Case{Dir: ".", DictPath: "system/decomposeParDict", Processors: &Processors{Gap: -1}},
			Run{Program: solver, NP: 4, Env: env},
			"error openfoam.processors neither system/controlDict nor processor directories | run from the case directory, or give -case DIR",
		},
		{
			"a case without the dictionary",
			Case{Dir: ".", DictPath: "system/decomposeParDict", Control: &Control{}, Processors: &Processors{Gap: -1}},
			Run{Program: solver, NP: 4, Env: env},
			"warning openfoam.subdomains no such file | write it: numberOfSubdomains and a method, scotch for example\n" +
				"error openfoam.processors no processor directories | decomposePar",
		},
		{
			"wrong vector",
			Case{Dir: ".", DictPath: "d", Decomposition: &Decomposition{Subdomains: ptr(8), Method: "simple", N: []int{2, 2, 1}}, Processors: &Processors{Count: 8, Gap: -1}},
			Run{Program: solver, NP: 8, Env: env},
			"error openfoam.vector n (2 2 1) with numberOfSubdomains 8 | change n, or use method scotch, which needs none",
		},
		{
			"another MPI's launcher", decomposed(4),
			Run{Program: solver, NP: 4, Launcher: "mpich", Env: env},
			"error openfoam.family FOAM_MPI=openmpi-system WM_MPLIB=SYSTEMOPENMPI, started by the mpirun of mpich | put the openmpi that OpenFOAM was built with first in PATH",
		},
		{
			"relatives", decomposed(4),
			Run{Program: solver, NP: 4, Launcher: "mpich", Env: with(map[string]string{"FOAM_MPI": "impi", "WM_MPLIB": "INTELMPI"})},
			"warning openfoam.family FOAM_MPI=impi WM_MPLIB=INTELMPI, started by the mpirun of mpich | put the intelmpi that OpenFOAM was built with first in PATH",
		},
		{"an MPI nobody names", decomposed(4), Run{Program: solver, NP: 4, Launcher: "mpich", Env: with(map[string]string{"FOAM_MPI": "mpi-system", "WM_MPLIB": "SYSTEMMPI"})}, ""},
		{"not sourced", decomposed(4), Run{Program: solver, NP: 4}, "warning openfoam.environment not set | source the etc/bashrc of your OpenFOAM first"},
		{
			"dummy", decomposed(4),
			Run{Program: solver, NP: 4, Env: with(map[string]string{"FOAM_MPI": "dummy"})},
			"error openfoam.environment dummy | set WM_MPLIB in etc/bashrc and build src/Pstream",
		},
		{"stale prefix", decomposed(4), Run{Program: solver, NP: 4, Env: with(map[string]string{"OPAL_PREFIX": "/old"})}, "warning openfoam.environment /old | unset OPAL_PREFIX"},
		{
			"hcoll and old UCX", decomposed(4),
			Run{Program: solver, NP: 4, Launcher: "openmpi", UCX: "1.11.0", Hcoll: ptr(true), Env: env},
			"warning openfoam.combination Open MPI's hcoll with UCX older than 1.12 (1.11.0) | OMPI_MCA_coll_hcoll_enable=0, or HPC-X 2.10 and later (github.com/open-mpi/ompi/issues/9624, /9761; github.com/openucx/ucx/issues/7391)",
		},
		{"hcoll off", decomposed(4), Run{Program: solver, NP: 4, Launcher: "openmpi", UCX: "1.11.0", Hcoll: ptr(true), Env: with(map[string]string{"OMPI_MCA_coll_hcoll_enable": "0"})}, ""},
		{"new UCX", decomposed(4), Run{Program: solver, NP: 4, Launcher: "openmpi", UCX: "1.15.0", Hcoll: ptr(true), Env: env}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := Examine(tc.c, tc.run)
			var got []string
			for _, f := range res.Findings {
				got = append(got, fmt.Sprintf("%s %s %s | %s", f.Severity, f.ID, f.Seen, f.Hint))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestResults(t *testing.T) {
	for names, want := range map[string]string{
		"0 constant": "", "0 0.5 1 10 9 constant": "10", "constant 1e-05": "1e-05", "0 0.orig 0x10 NaN Inf": "", "": "",
	} {
		if got := Results(strings.Fields(names)); got != want {
			t.Errorf("%s: %q, want %q", names, got, want)
		}
	}
}

func TestForward(t *testing.T) {
	env := map[string]string{"WM_PROJECT_DIR": "", "WM_MPLIB": "OPENMPI", "FOAM_RUN": "", "HOME": "", "PATH": "", "LD_LIBRARY_PATH": "", "OPAL_PREFIX": "/t", "MPI_BUFFER_SIZE": "1", "SSH_AUTH_SOCK": ""}
	if diff := cmp.Diff("FOAM_RUN LD_LIBRARY_PATH MPI_BUFFER_SIZE OPAL_PREFIX PATH WM_MPLIB WM_PROJECT_DIR", strings.Join(Forward(env), " ")); diff != "" {
		t.Error(diff)
	}
}

// TestRealCases reads every dictionary of the examples that Debian's
// openfoam-examples installs, and compares with foamDictionary where it runs.
func TestRealCases(t *testing.T) {
	const root = "/usr/share/doc/openfoam-examples/examples"
	if _, err := os.Stat(root); err != nil {
		t.Skipf("no OpenFOAM examples: %v (apt-get install openfoam openfoam-examples)", err)
	}
	oracle, err := exec.LookPath("foamDictionary")
	if err != nil {
		t.Logf("parsed without comparing: %v", err)
	}
	files, compared := 0, 0
	err = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Base(filepath.Dir(p)) != "system" || strings.HasSuffix(p, ".gz") {
			return err
		}
		name := e.Name()
		if !strings.HasPrefix(name, "decomposeParDict") && name != "controlDict" {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		files++
		if name == "controlDict" {
			if c, err := ReadControl(text); err != nil || c.Application == "" && bytes.Contains(text, []byte("\napplication ")) {
				t.Errorf("%s: %v, application %q", p, err, c.Application)
			}
			return nil
		}
		d, err := ReadDecomposition(text)
		if err != nil {
			t.Errorf("%s: %v", p, err)
			return nil
		}
		// Every fifth is compared: the oracle takes its time.
		if oracle == "" || files%5 != 0 {
			return nil
		}
		cmd := exec.Command(oracle, "-disableFunctionEntries", "-entry", "numberOfSubdomains", "-value", p)
		// Debian's build finds its own files only by these.
		cmd.Env = append(os.Environ(), "WM_PROJECT_DIR=/usr/share/openfoam", "FOAM_ETC=/usr/share/openfoam/etc")
		out, err := cmd.Output()
		want, err2 := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil || err2 != nil {
			return nil
		}
		compared++
		if d.Subdomains == nil || *d.Subdomains != want {
			t.Errorf("%s: read %+v, foamDictionary says %d", p, d, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files read, %d compared with foamDictionary", files, compared)
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{header, "n (2 2 1);", "a { b $c; c ${d.e}; }", "#include \"x\"\n$y;", "x #codeStream { code #{ } #}; };", "a \"b\\\"c\";", "div(phi,U) Gauss;", "a $:b.c; b { c $..a; }"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ReadDecomposition(text)
		if err == nil && d.Subdomains != nil && *d.Subdomains < 1 {
			t.Fatalf("%d subdomains", *d.Subdomains)
		}
		//nolint:errcheck // it must only not panic
		_, _ = ReadControl(text)
		Examine(Case{Decomposition: &d}, Run{Program: strings.Fields(string(text)), NP: 4})
	})
}
