package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namedTest is a test or fuzz target, and what its comment says that it shows.
type namedTest struct {
	pkg   string // from the root of the tree
	shows string
}

// namedTests are all tests of the tree by name, and its scripts by file.
func namedTests(t *testing.T) map[string]namedTest {
	t.Helper()
	out := map[string]namedTest{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return filepath.SkipDir
		case strings.HasSuffix(path, ".txtar"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			first, _, _ := strings.Cut(string(text), "\n")
			out[d.Name()] = namedTest{filepath.Dir(rel), strings.TrimPrefix(first, "# ")}
			return nil
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				out[f.Name.Name] = namedTest{filepath.Dir(rel), comment(f)}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// comment is what the comment of a test says of it, without its name.
func comment(f *ast.FuncDecl) string {
	text, _, _ := strings.Cut(f.Doc.Text(), "\n\n")
	text = strings.Join(strings.Fields(text), " ")
	return strings.TrimSuffix(strings.TrimLeft(strings.TrimPrefix(text, f.Name.Name), ":, "), ".")
}

var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+|[a-z0-9-]+\\.txtar)`")

// TestPromises: each promise of docs/security.md and docs/reliability.md names a
// test, and the test is there.
func TestPromises(t *testing.T) {
	tests := namedTests(t)
	for _, page := range []string{"security.md", "reliability.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		promises := 0
		for i, line := range strings.Split(string(text), "\n") {
			names := testName.FindAllStringSubmatch(line, -1)
			if strings.HasPrefix(line, "- ") {
				promises++
				if names == nil {
					t.Errorf("%s:%d: no test holds this: %s", page, i+1, line)
				}
			}
			for _, n := range names {
				if _, ok := tests[n[1]]; !ok {
					t.Errorf("%s:%d: there is no test %s", page, i+1, n[1])
				}
			}
		}
		if promises < 10 {
			t.Errorf("%s: %d promises found", page, promises)
		}
	}
}

// faults are the tests that break something, in the order of docs/reliability.md.
var faults = []struct {
	about string
	tests []string
}{
	{"Signals and deaths", []string{
		"TestRealChaos", "TestRealHostsChaos", "TestRealHostsInterruptAtEveryStage", "TestNothingIsLeftOfAKilledRun", "TestSecondSignalEnds", "TestReaderLeaves",
		"TestPumpTellsTheJobThatNobodyReads", "TestRecordOfAKilledJob", "TestSweep",
	}},
	{"Hosts and networks", []string{
		"TestTwoHundredHosts", "TestDeadHostCostsItsDeadlineOnce", "TestHostThatIsOff", "TestKeepAlive", "TestNoRoute", "TestAgentThatNeverAnswers", "TestFaultsOfTheSystemsSSH",
		"TestNodeThatAnswersNoMoreIsNamedAndTheJobEnded", "TestFailedJobNamesTheNodeThatAnswersNoMore", "TestNodeSwitchedOffInMidJobEndsItAndIsNamed", "TestOneNodeCannotBeLookedAt",
	}},
	{"Machines", []string{
		"TestAFileThatNeverAnswers", "TestNothingAnswers", "TestEyesWaitForNoCounters", "TestFaultsAreNamedBeforeStart", "TestSilentFallbackIsSeenByCounters",
		"TestJobPortsOfTwoHostsWithOneRailDown", "TestMissingNodesAreOne", "TestLocateAccusesNobodyWrongly",
	}},
	{"Files and programs", []string{
		"TestWriteWhole", "TestOneRunARecord", "TestNoHomeIsMade", "TestProgramInOpenPlaces", "TestProgramSwappedWhileItIsLookedAt", "TestAnotherProgramOnOneNode", "TestFilesOnNodes",
	}},
	{"Input", []string{
		"TestNoiseDoesNotMatter", "TestPiecesDoNotMatter", "TestNoPrefixAccuses", "TestMemoryIsBounded", "TestManyHosts", "TestRandomBytesAreNothing", "TestLongInputIsBounded",
		"TestCutTables", "TestNothingMovesTheCursor", "TestNoSecretLeaves",
	}},
	{"Slurm", []string{"TestSlurmWrappers", "TestSlurmDoorsSpeakInTheLog", "TestRealSlurmDoors", "TestRootReadsNoUsersFiles"}},
}

// TestFaultsDocs holds the list of faults at the end of docs/reliability.md to the
// tests' own words; 'make docs' writes it.
func TestFaultsDocs(t *testing.T) {
	tests := namedTests(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	const heading = "## Faults that were tried\n"
	head, _, ok := strings.Cut(string(text), heading)
	if !ok {
		t.Fatal("docs/reliability.md has no list of faults")
	}
	var b strings.Builder
	b.WriteString(head + heading + "\nWhat each test did and saw, in its own words ('make docs' writes this list). All of them\npass where this page is built; those named Real need the real programs (`make test-real`)\nor the lab (`make lab-test`).\n")
	var seen []string
	for _, group := range faults {
		fmt.Fprintf(&b, "\n### %s\n\n| test | what was tried, and what happened |\n|---|---|\n", group.about)
		for _, name := range group.tests {
			test, ok := tests[name]
			if !ok || test.shows == "" || slices.Contains(seen, name) {
				t.Errorf("%s: not there, without words, or there twice: %+v", name, test)
			}
			seen = append(seen, name)
			fmt.Fprintf(&b, "| `%s` (%s) | %s |\n", name, test.pkg, strings.ReplaceAll(test.shows, "|", "\\|"))
		}
	}
	holdDocs(t, "reliability.md", b.String())
}
