package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
)

// schemaDirName and schemaSeenName hand the schemas, and where to note which were
// met, to the fabrun of a script.
const (
	schemaDirName  = "FABRUN_TEST_SCHEMAS"
	schemaSeenName = "FABRUN_TEST_SCHEMAS_SEEN"
)

// checkedMain is main, but that JSON on standard output which its schema refuses
// ends with status 99. A job's standard output is its own.
func checkedMain() {
	root := (&app{}).rootCmd()
	full, isRun := insertRun(os.Args[1:])
	verb, _, err := root.Find(full)
	wanted := slices.Contains(os.Args, "--json") || slices.Contains(os.Args, "json")
	if isRun || err != nil || !wanted || slices.Contains([]string{"run", "rank"}, verb.Name()) || slices.Contains(os.Args, "--follow") {
		main()
		return
	}
	var out bytes.Buffer
	code := run(context.Background(), os.Args, os.Environ(), os.Stdin, io.MultiWriter(os.Stdout, &out), os.Stderr)
	if strings.HasPrefix(out.String(), "{") {
		if err := checkSchema(os.Getenv(schemaDirName), os.Getenv(schemaSeenName), out.Bytes(), ""); err != nil {
			fmt.Fprintf(os.Stderr, "printed what docs/json refuses: %v\n", err)
			code = 99
		}
	}
	os.Exit(code)
}

// checkSchema holds a document against the schema that it names, or this one,
// and notes the schema as met.
func checkSchema(dir, seen string, text []byte, name string) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return errors.New("no object")
	}
	if name == "" {
		says, _ := doc["schema"].(string)
		if name, ok = strings.CutPrefix(says, "fabrun/"); ok {
			name, ok = strings.CutSuffix(name, "/v1")
		}
		if !ok {
			return fmt.Errorf("the document's schema is %q", says)
		}
	}
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(dir, name+".json"))
	if err != nil {
		return err
	}
	if err := schema.Validate(v); err != nil {
		return err
	}
	// A schema that lets anything through would prove nothing.
	doc["not a field"] = 1
	if schema.Validate(v) == nil {
		return fmt.Errorf("%s.json takes a field that it does not name", name)
	}
	return os.WriteFile(filepath.Join(seen, name), nil, 0o644)
}

// cmdSchema is "schema NAME FILE [MEMBER]": the lines of a file that are JSON
// objects, or the whole of it, or a member of that, are held against a schema.
func cmdSchema(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: schema NAME FILE [MEMBER]")
	}
	text := []byte(ts.ReadFile(args[1]))
	if len(args) == 3 {
		var all map[string]json.RawMessage
		ts.Check(json.Unmarshal(text, &all))
		text = all[args[2]]
	}
	docs := [][]byte{text}
	if !json.Valid(text) {
		docs = slices.DeleteFunc(bytes.Split(text, []byte("\n")), func(l []byte) bool { return !bytes.HasPrefix(l, []byte("{")) })
	}
	if len(docs) == 0 {
		ts.Fatalf("no JSON in %s", args[1])
	}
	for _, d := range docs {
		if err := checkSchema(ts.Getenv(schemaDirName), ts.Getenv(schemaSeenName), d, args[0]); err != nil {
			ts.Fatalf("%v\n%s", err, d)
		}
	}
}

// cmdSchemas wants every schema of docs/json to have been met in this script.
func cmdSchemas(ts *testscript.TestScript, _ bool, _ []string) {
	names, err := filepath.Glob(filepath.Join(ts.Getenv(schemaDirName), "*.json"))
	if err != nil || len(names) == 0 {
		ts.Fatalf("schemas: %v, %v", names, err)
	}
	for _, n := range names {
		name := strings.TrimSuffix(filepath.Base(n), ".json")
		if _, err := os.Stat(filepath.Join(ts.Getenv(schemaSeenName), name)); err != nil {
			ts.Logf("no command of this script prints fabrun/%s/v1", name)
			defer ts.Fatalf("schemas were left out")
		}
	}
}

// TestJSONOfEveryVerb holds the script that prints a document of each kind to the
// verbs: each is there with --json.
func TestJSONOfEveryVerb(t *testing.T) {
	script, err := os.ReadFile("../../testdata/script/cli-json.txtar")
	if err != nil {
		t.Fatal(err)
	}
	commands, _, _ := bytes.Cut(script, []byte("\n-- "))
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		path := c.CommandPath()
		// rank becomes the program; run without its word is in the script.
		if c.HasSubCommands() || c.Hidden || slices.Contains([]string{"fabrun rank", "fabrun run"}, path) || strings.HasPrefix(path, "fabrun completion") || strings.HasPrefix(path, "fabrun help") {
			return
		}
		if !slices.ContainsFunc(strings.Split(string(commands), "\n"), func(l string) bool {
			return strings.Contains(l, " "+path+" ") && strings.Contains(l, " --json")
		}) {
			t.Errorf("%s --json is not in cli-json.txtar", path)
		}
	}
	walk((&app{}).rootCmd())
}
