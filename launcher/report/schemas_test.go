package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/watch"
)

var update = flag.Bool("update", false, "write docs/json and docs/json.md")

// documents are all JSON texts that fabrun writes. docs/json.md and the schemas
// in docs/json are made of these types, their field tags and their comments.
var documents = []struct {
	name, from, about string
	value             any
}{
	{"error", "any verb that fails, on standard output; `run` on standard error", "Why the command could not do it, and what to do.", errorJSON{}},
	{"run", "`fabrun run --json -- …`, the last line on standard error", "What a job came to: its exit status, the verdict, what logs and counters said.", runJSON{}},
	{"plan", "`fabrun plan --json -- …`", "What `fabrun run` would do, and why.", planJSON{}},
	{"env", "`fabrun env --json`", "The variables of one node.", envJSON{}},
	{"hosts", "`fabrun hosts --json`", "Where the job's hosts come from, and which they are.", hostsJSON{}},
	{"topo", "`fabrun topo --json`", "NUMA nodes, GPUs, HCAs, ports, GIDs, and how far they are from each other.", topoJSON{}},
	{"topo-validation", "`fabrun topo --validate FILE --json`", "Does an NCCL topology file describe this machine?", validationJSON{}},
	{"matrix", "`fabrun topo --matrix FILE --json`", "A pasted `nvidia-smi topo -m`.", matrixJSON{}},
	{"check", "`fabrun check --json`", "Hosts, pairs, collectives and bring-up: what was found.", checkJSON{}},
	{"gids", "`fabrun check --gids FILE --json`", "A pasted `show_gids`.", gidsJSON{}},
	{"ports", "`fabrun check --ports FILE --json`", "Pasted `ibstat`, `ibstatus`, `ibv_devinfo` or `ibdev2netdev`.", portsJSON{}},
	{"qos", "`fabrun check --qos FILE --json`", "A pasted `mlnx_qos` or `dcb`. The first netdev's answers stand beside `devices`.", pastedQoSJSON{}},
	{"check-switch", "`fabrun check --switch-output FILE --json`", "What a switch printed, against a profile.", switchJSON{}},
	{"perftest", "`fabrun check --perftest FILE --json`", "A pasted `ib_write_bw`, `ib_send_lat` or other perftest program.", perftestJSON{}},
	{"nccl-tests", "`fabrun check --nccl-tests FILE --json`", "Pasted nccl-tests.", ncclTestsJSON{}},
	{"osu", "`fabrun check --osu FILE --json`", "A pasted OSU benchmark.", osuJSON{}},
	{"pcap", "`fabrun check --pcap FILE --json`", "How the RoCE v2 packets of a capture are marked.", captureJSON{}},
	{"watch", "`fabrun watch --json`; also within a run's result", "What a log says about the transport.", watch.Verdict{}},
	{"record", "`fabrun run --record FILE`: one object a line", "A recorded job. Beside `time` each line has exactly one of the other values; the first line has the schema and `start`. `relay`, `quiet` and `log` go between nodes only.", recordLine{}},
	{"report", "`fabrun report FILE --json`", "A recorded job, as a whole.", reportJSON{}},
	{"compare", "within `fabrun/report/v1`, with `--against`", "A record beside an earlier one.", Comparison{}},
	{"slurm-job", "`fabrun report /var/lib/fabrun/jobs/ID.json --json`; the file itself", "What a Slurm epilog left of a job on one node.", NodeJob{}},
	{"slurm-selftest", "`fabrun slurm selftest --json`", "Do the doors of Slurm work on this node?", selftestJSON{}},
	{"snapshot", "`fabrun snapshot --json`", "A snapshot, as a string.", snapshotJSON{}},
	{"diff", "`fabrun diff A B --json`", "What differs between two hosts.", diffJSON{}},
	{"lint", "`fabrun lint FILE… --json`", "Mistakes in job scripts.", lintJSON{}},
	{"dscp", "`fabrun dscp N --json`", "One DSCP as traffic class, and as variables.", dscpJSON{}},
	{"profiles", "`fabrun profile list --json`", "The profiles that there are.", profilesJSON{}},
	{"profile", "`fabrun profile show NAME --json`", "A fabric profile.", profileJSON{}},
	{"workload", "`fabrun profile show NAME --json`", "A workload profile.", workloadJSON{}},
	{"profile-check", "`fabrun profile check FILE --json`", "A profile that loads. One that does not is an error.", profileCheckJSON{}},
	{"qos-config", "`fabrun profile show NAME --host --json`, `--switch`", "The QoS plan as commands.", qosConfigJSON{}},
	{"version", "`fabrun version --json`", "The program.", Version{}},
}

// member and object are a JSON object whose members keep their order.
type member struct {
	name  string
	value any
}

type object []member

func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(m.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// sources are the comments and constants of fabrun's packages, which reflection
// does not have.
type sources struct {
	t        *testing.T
	read     map[string]bool
	types    map[string]string   // "fabrun/topology/finding.Finding"
	fields   map[string]string   // "fabrun/topology/finding.Finding.ID"
	literals map[string][]string // constants of a string type
}

func (s *sources) load(pkg string) {
	if s.read[pkg] {
		return
	}
	s.read[pkg] = true
	dir := filepath.Join("..", "..", strings.TrimPrefix(pkg, "fabrun/"))
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		s.t.Fatalf("sources of %s: %v", pkg, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				s.declaration(pkg, g)
			}
		}
	}
}

func (s *sources) declaration(pkg string, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			name := pkg + "." + spec.Name.Name
			doc := spec.Doc
			if doc == nil {
				doc = g.Doc
			}
			s.types[name] = words(doc)
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					for _, id := range f.Names {
						s.fields[name+"."+id.Name] = strings.TrimSpace(words(f.Doc) + " " + words(f.Comment))
					}
				}
			}
		case *ast.ValueSpec:
			of, ok := spec.Type.(*ast.Ident)
			if !ok || g.Tok != token.CONST || len(spec.Values) != 1 {
				continue
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					s.t.Fatal(err)
				}
				s.literals[pkg+"."+of.Name] = append(s.literals[pkg+"."+of.Name], text)
			}
		}
	}
}

var nilWord = regexp.MustCompile(`\bnil\b`)

// words is a comment as a reader of JSON takes it: Go's nil is null there.
func words(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return nilWord.ReplaceAllString(strings.Join(strings.Fields(c.Text()), " "), "null")
}

// generator makes schemas of Go types. Shapes have one name in all documents.
type generator struct {
	t      *testing.T
	src    *sources
	names  map[reflect.Type]string
	shapes map[string]object // by name, as they are defined
	order  []string
}

var (
	timeType   = reflect.TypeFor[time.Time]()
	rawType    = reflect.TypeFor[json.RawMessage]()
	marshaller = reflect.TypeFor[json.Marshaler]()
)

// of is the schema of a type where it stands.
func (g *generator) of(t reflect.Type) object {
	switch {
	case t == timeType:
		return object{{"type", "string"}, {"format", "date-time"}}
	case t == rawType:
		return object{{"$ref", "plan.json"}} // a record holds no other
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(g.of(t.Elem()))
	case reflect.String:
		g.src.load(pkgOf(t))
		if lits := g.src.literals[t.PkgPath()+"."+t.Name()]; len(lits) > 0 {
			return object{{"type", "string"}, {"enum", lits}}
		}
		return object{{"type", "string"}}
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int, reflect.Int64, reflect.Int32:
		return object{{"type", "integer"}}
	case reflect.Uint, reflect.Uint64, reflect.Uint32:
		return object{{"type", "integer"}, {"minimum", 0}}
	case reflect.Float64:
		return object{{"type", "number"}}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{{"type", "string"}, {"contentEncoding", "base64"}}
		}
		return object{{"type", "array"}, {"items", g.of(t.Elem())}}
	case reflect.Map:
		// Names of open sets: the constants of a key are those of today.
		return object{{"type", "object"}, {"additionalProperties", g.of(t.Elem())}}
	case reflect.Struct:
		return object{{"$ref", "#/$defs/" + g.shape(t)}}
	}
	g.t.Fatalf("no schema for %v", t)
	return nil
}

// pkgOf is fabrun's package of a type, this one where it is none of fabrun's.
func pkgOf(t reflect.Type) string {
	if strings.HasPrefix(t.PkgPath(), "fabrun/") {
		return t.PkgPath()
	}
	return "fabrun/launcher/report"
}

func nullable(s object) object {
	if kind, ok := s.get("type").(string); ok && s.get("enum") == nil {
		s[slices.IndexFunc(s, func(m member) bool { return m.name == "type" })].value = []string{kind, "null"}
		return s
	}
	return object{{"anyOf", []object{s, {{"type", "null"}}}}}
}

// shape defines a struct and returns its name.
func (g *generator) shape(t reflect.Type) string {
	if name, ok := g.names[t]; ok {
		return name
	}
	if t.Name() == "" {
		g.t.Fatalf("%v: give the type a name, which the schema can say", t)
	}
	name := upperFirst(strings.TrimSuffix(t.Name(), "JSON"))
	if _, taken := g.shapes[name]; taken {
		name = upperFirst(t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]) + name
	}
	g.names[t], g.shapes[name] = name, nil // before its fields: a shape may hold itself
	g.order = append(g.order, name)
	g.shapes[name] = g.structure(t)
	return name
}

func upperFirst(s string) string {
	r := []rune(s)
	r[0] = unicode.ToUpper(r[0])
	return string(r)
}

func (g *generator) structure(t reflect.Type) object {
	g.src.load(t.PkgPath())
	var properties object
	required := []string{}
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" || tag == "-" {
			continue
		}
		if tag == "" {
			g.t.Fatalf("%v.%s has no name in JSON", t, f.Name)
		}
		if properties.get(tag) != nil {
			continue // of an embedded type, and hidden
		}
		in := t
		if len(f.Index) > 1 {
			in = t.FieldByIndex(f.Index[:len(f.Index)-1]).Type
		}
		g.src.load(in.PkgPath())
		s, about := g.of(f.Type), g.src.fields[in.PkgPath()+"."+in.Name()+"."+f.Name]
		switch optional := options == "omitempty"; {
		case !optional:
			required = append(required, tag)
			if k := f.Type.Kind(); (k == reflect.Slice || k == reflect.Map) && strings.Contains(about, "null") || g.writesNull(t, tag) {
				s = nullable(s)
			}
		case f.Type.Kind() == reflect.Pointer:
			s = g.of(f.Type.Elem()) // absent, never null
		}
		if about != "" {
			s = append(s, member{"description", about})
		}
		properties = append(properties, member{tag, s})
	}
	out := object{{"type", "object"}}
	if about := g.src.types[t.PkgPath()+"."+t.Name()]; about != "" {
		out = append(out, member{"description", about})
	}
	return append(out, member{"properties", properties}, member{"required", required}, member{"additionalProperties", false})
}

// writesNull asks a type that writes itself whether a field that is no pointer is null there.
func (g *generator) writesNull(t reflect.Type, field string) bool {
	if !t.Implements(marshaller) {
		return false
	}
	text, err := json.Marshal(reflect.Zero(t).Interface())
	if err != nil {
		g.t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		g.t.Fatal(err)
	}
	f, ok := fields[field]
	if !ok {
		g.t.Fatalf("%v does not write %q", t, field)
	}
	kind := reflect.Invalid
	for _, v := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(v.Tag.Get("json"), ","); tag == field {
			kind = v.Type.Kind()
		}
	}
	return string(f) == "null" && kind != reflect.Slice && kind != reflect.Map && kind != reflect.Pointer
}

// uses are the shapes that a schema refers to, themselves included, in order.
func (g *generator) uses(s any, found []string) []string {
	switch s := s.(type) {
	case object:
		for _, m := range s {
			if ref, ok := m.value.(string); ok && m.name == "$ref" {
				if name, ok := strings.CutPrefix(ref, "#/$defs/"); ok && !slices.Contains(found, name) {
					found = g.uses(g.shapes[name], append(found, name))
				}
			}
			found = g.uses(m.value, found)
		}
	case []object:
		for _, o := range s {
			found = g.uses(o, found)
		}
	}
	return found
}

// TestSchemaDocs holds docs/json and docs/json.md against the types; 'make docs'
// writes them.
func TestSchemaDocs(t *testing.T) {
	g := &generator{t: t, src: &sources{t, map[string]bool{}, map[string]string{}, map[string]string{}, map[string][]string{}}, names: map[reflect.Type]string{}, shapes: map[string]object{}}
	want := map[string][]byte{}
	links := map[string]string{} // shapes that are documents, too
	for _, d := range documents {
		links[g.shape(reflect.TypeOf(d.value))] = "fabrun/" + d.name + "/v1"
	}
	var index, pages strings.Builder
	for _, d := range documents {
		typ := reflect.TypeOf(d.value)
		name, root := g.shape(typ), g.structure(typ)
		schema := "fabrun/" + d.name + "/v1"
		properties, ok := root.get("properties").(object)
		if !ok || properties[0].name != "schema" {
			t.Fatalf("%s: the first field of %v is not its schema", d.name, typ)
		}
		// Of a record it is on the first line only.
		properties[0].value = object{{"const", schema}}
		defs := object{}
		for _, n := range g.uses(root, nil) {
			def := g.shapes[n]
			if n == name { // a verdict holds verdicts
				def = root
			}
			defs = append(defs, member{n, def})
		}
		doc := object{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", schema}, {"description", d.about}}
		for _, m := range root {
			if m.name != "description" {
				doc = append(doc, m)
			}
		}
		if len(defs) > 0 {
			doc = append(doc, member{"$defs", defs})
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(doc); err != nil {
			t.Fatal(err)
		}
		want["json/"+d.name+".json"] = b.Bytes()
		fmt.Fprintf(&index, "| [`%s`](#%s) | %s | [%s.json](json/%s.json) |\n", schema, anchor(schema), d.from, d.name, d.name)
		fmt.Fprintf(&pages, "\n## %s\n\n%s\n\n", schema, d.about)
		g.table(&pages, root, links)
	}
	var shapes strings.Builder
	for _, name := range slices.Sorted(slices.Values(g.order)) {
		if s := g.shapes[name]; links[name] == "" {
			fmt.Fprintf(&shapes, "\n### %s\n\n", name)
			if about, ok := s.get("description").(string); ok {
				fmt.Fprintf(&shapes, "%s\n\n", about)
			}
			g.table(&shapes, s, links)
		}
	}
	want["json.md"] = []byte(jsonHead + index.String() + pages.String() + "\n## Shapes\n\nWhat several of them hold.\n" + shapes.String())
	compareDocs(t, want)
}

const jsonHead = `# JSON

Every verb has ` + "`--json`" + `. This page and the schemas beside it (JSON Schema, draft 2020-12)
are generated from the program's types, and its tests hold what the verbs print
against them.

- Every document names its schema: ` + "`\"schema\": \"fabrun/NAME/v1\"`" + `. Within v1 fields are
  added, never renamed, removed or given another meaning. The schemas are those of
  this version and refuse what they do not name; a program that reads fabrun's output
  should not.
- What is not known is ` + "`null`" + `, never 0 or "". A field marked *may be absent* is absent
  where there is nothing to say.
- Units are in the names: ` + "`rate_gbps`, `mtu_bytes`, `usec_typical`" + `. Times are RFC 3339.
- IDs of findings, events, rules and causes are in [rules.md](rules.md), exit statuses
  in [exit-status.md](exit-status.md).

    fabrun plan --json -- mpirun -np 96 simpleFoam -parallel | jq -r '.findings[] | select(.severity == "error") | .id'

| schema | printed by | file |
|---|---|---|
`

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, heading)
}

// table writes the fields of a struct; links are the headings of its shapes.
func (g *generator) table(b *strings.Builder, structure object, links map[string]string) {
	properties, _ := structure.get("properties").(object)
	required, _ := structure.get("required").([]string)
	b.WriteString("| field | type | |\n|---|---|---|\n")
	for _, m := range properties {
		s, _ := m.value.(object)
		about, _ := s.get("description").(string)
		absent := ""
		if !slices.Contains(required, m.name) {
			absent = ", may be absent"
		}
		fmt.Fprintf(b, "| `%s` | %s%s | %s |\n", m.name, typeWords(s, links), absent, strings.ReplaceAll(about, "|", "\\|"))
	}
}

func typeWords(s object, links map[string]string) string {
	if c, ok := s.get("const").(string); ok {
		return "`\"" + c + "\"`"
	}
	if ref, ok := s.get("$ref").(string); ok {
		name, local := strings.CutPrefix(ref, "#/$defs/")
		if !local {
			name = "fabrun/" + strings.TrimSuffix(ref, ".json") + "/v1"
		} else if heading, ok := links[name]; ok {
			name = heading
		}
		return "[" + name + "](#" + anchor(name) + ")"
	}
	if either, ok := s.get("anyOf").([]object); ok {
		return typeWords(either[0], links) + " or null"
	}
	if lits, ok := s.get("enum").([]string); ok {
		return "`" + strings.Join(lits, "`, `") + "`"
	}
	kind, null := s.get("type").(string)
	suffix := ""
	if !null {
		kinds, _ := s.get("type").([]string)
		kind, suffix = kinds[0], " or null"
	}
	switch kind {
	case "array":
		items, _ := s.get("items").(object)
		return "list of " + typeWords(items, links) + suffix
	case "object":
		values, _ := s.get("additionalProperties").(object)
		return "object of " + typeWords(values, links) + suffix
	}
	if s.get("format") != nil {
		kind = "time"
	}
	return kind + suffix
}

func compareDocs(t *testing.T, want map[string][]byte) {
	docs := filepath.Join("..", "..", "docs")
	if *update {
		if err := os.MkdirAll(filepath.Join(docs, "json"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	have, err := fs.Glob(os.DirFS(docs), "json/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range have {
		if _, ok := want[name]; ok {
			continue
		}
		if *update {
			if err := os.Remove(filepath.Join(docs, name)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		t.Errorf("docs/%s is of no document; run make docs", name)
	}
	for name, text := range want {
		path := filepath.Join(docs, name)
		if *update {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%v; run make docs", err)
		} else if diff := cmp.Diff(string(text), string(got)); diff != "" {
			t.Errorf("docs/%s is not what the types say (run make docs; -types +file):\n%s", name, diff)
		}
	}
}
