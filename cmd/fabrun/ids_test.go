package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"fabrun/launcher/watch"
	"fabrun/topology/finding"
)

// flow follows constants through the program's own packages: what may a field,
// a parameter, a result or a variable hold? It is blind to order and to single
// instances, which is enough to collect IDs: they are written down as
// constants, handed on, and at most put together with +.
type flow struct {
	info  *types.Info
	from  map[types.Object][]flowExpr     // what is assigned to it, anywhere
	keys  map[types.Object][]flowExpr     // of a map: what is put into it as a key
	rets  map[types.Object][][]ast.Expr   // of a function: what each return gives
	funcs map[types.Object][]types.Object // of a variable of function type: the functions it may hold
	calls map[types.Object][]*ast.CallExpr
	param map[types.Object]paramOf
	pkgs  map[string]*types.Package
	fset  *token.FileSet
}

// flowExpr is an expression that reaches an object; elem says that it is a
// container whose elements do.
type flowExpr struct {
	expr ast.Expr
	how  flowHow
	nth  int // of a call with several results
}

type flowHow int

const (
	itself flowHow = iota
	itsElements
	itsKeys
	itsTail // with += it is put behind what is there
)

type paramOf struct {
	fn       types.Object // the function, or the variable that a literal is assigned to; nil for one that is only passed on
	n        int
	variadic bool
}

// ownFlow reads the program once for all tests.
var ownFlow = sync.OnceValues(loadFlow)

func loadFlow() (*flow, error) {
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Export,Standard,GoFiles,Dir", "./cmd/fabrun")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New("go list: " + err.Error() + "\n" + stderr.String())
	}
	f := &flow{
		info: &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
			Selections: map[*ast.SelectorExpr]*types.Selection{}, Implicits: map[ast.Node]types.Object{},
		},
		from: map[types.Object][]flowExpr{}, keys: map[types.Object][]flowExpr{}, rets: map[types.Object][][]ast.Expr{},
		funcs: map[types.Object][]types.Object{}, calls: map[types.Object][]*ast.CallExpr{}, param: map[types.Object]paramOf{},
		pkgs: map[string]*types.Package{}, fset: token.NewFileSet(),
	}
	exports := map[string]string{}
	compiled := importer.ForCompiler(f.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	imp := importerFunc(func(path string) (*types.Package, error) {
		if p, ok := f.pkgs[path]; ok {
			return p, nil
		}
		return compiled.Import(path)
	})
	var files []*ast.File
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if !strings.HasPrefix(p.ImportPath, "fabrun/") {
			continue
		}
		var own []*ast.File // go list gives a package after what it imports
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(f.fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				return nil, err
			}
			own = append(own, file)
		}
		pkg, err := (&types.Config{Importer: imp}).Check(p.ImportPath, f.fset, own, f.info)
		if err != nil {
			return nil, err
		}
		f.pkgs[p.ImportPath] = pkg
		files = append(files, own...)
	}
	for _, file := range files {
		f.read(file)
	}
	return f, nil
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }

// object is what an expression names: a variable, a field, a function; nil for
// what has no name.
func (f *flow) object(e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if o := f.info.Defs[e]; o != nil {
			return origin(o)
		}
		return origin(f.info.Uses[e])
	case *ast.SelectorExpr:
		return origin(f.info.Uses[e.Sel])
	case *ast.IndexExpr:
		return f.object(e.X) // an element of it, or a generic function
	case *ast.IndexListExpr:
		return f.object(e.X)
	case *ast.StarExpr:
		return f.object(e.X)
	case *ast.SliceExpr:
		return f.object(e.X)
	}
	return nil
}

// origin is the generic's own object where o is of an instance.
func origin(o types.Object) types.Object {
	switch o := o.(type) {
	case *types.Var:
		return o.Origin()
	case *types.Func:
		return o.Origin()
	case nil:
		return nil
	}
	return o
}

func (f *flow) assign(to types.Object, e flowExpr) {
	if to == nil {
		return
	}
	f.from[to] = append(f.from[to], e)
	if e.how != itself {
		return
	}
	switch v := ast.Unparen(e.expr).(type) {
	case *ast.FuncLit:
		f.params(to, v.Type, v.Body)
	case *ast.Ident, *ast.SelectorExpr:
		if _, isFunc := f.info.TypeOf(v).Underlying().(*types.Signature); isFunc {
			if o := f.object(v); o != nil {
				f.funcs[to] = append(f.funcs[to], o)
			}
		}
	}
}

// params notes which parameters are of the function that fn names, and what it returns.
func (f *flow) params(fn types.Object, ft *ast.FuncType, body *ast.BlockStmt) {
	n := 0
	for _, field := range ft.Params.List {
		_, variadic := field.Type.(*ast.Ellipsis)
		for _, name := range field.Names {
			if o := f.info.Defs[name]; o != nil {
				f.param[o] = paramOf{fn, n, variadic}
			}
			n++
		}
		if len(field.Names) == 0 {
			n++
		}
	}
	var results []ast.Expr // named ones: a bare return gives them
	if ft.Results != nil {
		for _, field := range ft.Results.List {
			for _, name := range field.Names {
				results = append(results, name)
			}
		}
	}
	if results != nil {
		f.rets[fn] = append(f.rets[fn], results)
	}
	if body == nil {
		return
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false // its returns are its own
		case *ast.ReturnStmt:
			if len(n.Results) > 0 {
				f.rets[fn] = append(f.rets[fn], n.Results)
			}
		}
		return true
	})
}

func (f *flow) read(file *ast.File) {
	pairs := func(lhs, rhs []ast.Expr) {
		for i, l := range lhs {
			e := flowExpr{expr: rhs[0], nth: i}
			if len(lhs) == len(rhs) {
				e = flowExpr{expr: rhs[i]}
			}
			f.assign(f.object(l), e)
			if ix, ok := ast.Unparen(l).(*ast.IndexExpr); ok && f.object(ix.X) != nil {
				f.keys[f.object(ix.X)] = append(f.keys[f.object(ix.X)], flowExpr{expr: ix.Index})
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			f.params(origin(f.info.Defs[n.Name]), n.Type, n.Body)
		case *ast.AssignStmt:
			if n.Tok == token.ADD_ASSIGN {
				f.assign(f.object(n.Lhs[0]), flowExpr{expr: n.Rhs[0], how: itsTail})
				return true
			}
			pairs(n.Lhs, n.Rhs)
		case *ast.ValueSpec:
			if len(n.Values) > 0 {
				lhs := make([]ast.Expr, len(n.Names))
				for i, name := range n.Names {
					lhs[i] = name
				}
				pairs(lhs, n.Values)
			}
		case *ast.RangeStmt:
			if n.Key != nil {
				f.assign(f.object(n.Key), flowExpr{expr: n.X, how: itsKeys})
			}
			if n.Value != nil {
				f.assign(f.object(n.Value), flowExpr{expr: n.X, how: itsElements})
			}
		case *ast.CompositeLit:
			f.literal(n)
		case *ast.CallExpr:
			if o := f.object(n.Fun); o != nil {
				f.calls[o] = append(f.calls[o], n)
			}
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "append" && f.info.Uses[id] == types.Universe.Lookup("append") {
				how := itself
				if n.Ellipsis.IsValid() {
					how = itsElements
				}
				for _, arg := range n.Args[1:] {
					f.assign(f.object(n.Args[0]), flowExpr{expr: arg, how: how})
				}
			}
			if lit, ok := n.Fun.(*ast.FuncLit); ok { // called where it stands
				o := types.NewVar(lit.Pos(), nil, "func", f.info.TypeOf(lit))
				f.params(o, lit.Type, lit.Body)
				f.calls[o] = append(f.calls[o], n)
			}
			for i, arg := range n.Args {
				if o := f.formal(n, i); o != nil {
					if _, lit := arg.(*ast.FuncLit); lit {
						f.assign(o, flowExpr{expr: arg})
					} else if _, isFunc := f.info.TypeOf(arg).Underlying().(*types.Signature); isFunc {
						f.assign(o, flowExpr{expr: arg})
					}
				}
			}
		}
		return true
	})
}

// formal is the i-th parameter of the function that call calls by name.
func (f *flow) formal(call *ast.CallExpr, i int) types.Object {
	fn, ok := f.object(call.Fun).(*types.Func)
	if !ok {
		return nil
	}
	sig := fn.Type().(*types.Signature)
	if sig.Params().Len() == 0 {
		return nil
	}
	return sig.Params().At(min(i, sig.Params().Len()-1))
}

func (f *flow) literal(n *ast.CompositeLit) {
	t := f.info.TypeOf(n)
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	st, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			f.assign(f.object(kv.Key), flowExpr{expr: kv.Value})
		} else {
			f.assign(origin(st.Field(i)), flowExpr{expr: e})
		}
	}
}

// values is every constant that o may hold. A part of it that is no constant of
// the program is "*".
func (f *flow) values(o types.Object) map[string][]token.Pos {
	out := map[string][]token.Pos{}
	f.objectValues(o, itself, map[seenFlow]bool{}, out)
	return out
}

type seenFlow struct {
	o   types.Object
	how flowHow
	nth int
}

func (f *flow) objectValues(o types.Object, how flowHow, seen map[seenFlow]bool, out map[string][]token.Pos) {
	if o == nil || seen[seenFlow{o, how, -1}] {
		return
	}
	seen[seenFlow{o, how, -1}] = true
	all := out
	out = map[string][]token.Pos{} // of this object alone, until += is done
	defer func() {
		for v, at := range out {
			all[v] = append(all[v], at...)
		}
	}()
	if c, ok := o.(*types.Const); ok {
		if c.Val().Kind() == constant.String {
			out[constant.StringVal(c.Val())] = append(out[constant.StringVal(c.Val())], c.Pos())
		}
		return
	}
	for _, e := range f.from[o] {
		switch {
		case e.how == itsTail: // below, when the heads are known
		case e.how == itself:
			f.exprValues(e.expr, how, e.nth, seen, out)
		case how == itself:
			f.exprValues(e.expr, e.how, 0, seen, out)
		case how == itsElements: // an element that is itself a container
			f.exprValues(e.expr, itsElements, 0, seen, out)
		}
	}
	if how == itsKeys {
		for _, e := range f.keys[o] {
			f.exprValues(e.expr, itself, 0, seen, out)
		}
	}
	for _, e := range f.from[o] {
		if e.how != itsTail || how != itself {
			continue
		}
		heads, tails := maps.Clone(out), map[string][]token.Pos{}
		f.exprValues(e.expr, itself, 0, seen, tails)
		if len(tails) == 0 {
			tails["*"] = nil
		}
		for h := range heads {
			for tail := range tails {
				out[h+tail] = append(out[h+tail], e.expr.Pos())
			}
		}
	}
	p, ok := f.param[o]
	if !ok || p.fn == nil {
		return
	}
	for callee := range f.namesOf(p.fn) {
		for _, call := range f.calls[callee] {
			args := call.Args
			if p.variadic && !call.Ellipsis.IsValid() {
				for _, a := range args[min(p.n, len(args)):] {
					f.exprValues(a, itself, 0, seen, out)
				}
			} else if p.n < len(args) {
				f.exprValues(args[p.n], how, 0, seen, out)
			}
		}
	}
}

// namesOf is fn and every variable that may hold it.
func (f *flow) namesOf(fn types.Object) map[types.Object]bool {
	out := map[types.Object]bool{fn: true}
	for grown := true; grown; {
		grown = false
		for v, held := range f.funcs {
			if !out[v] && slices.ContainsFunc(held, func(o types.Object) bool { return out[o] }) {
				out[v], grown = true, true
			}
		}
	}
	return out
}

func (f *flow) exprValues(e ast.Expr, how flowHow, nth int, seen map[seenFlow]bool, out map[string][]token.Pos) {
	e = ast.Unparen(e)
	if tv, ok := f.info.Types[e]; ok && tv.Value != nil {
		if tv.Value.Kind() == constant.String {
			s := constant.StringVal(tv.Value)
			out[s] = append(out[s], e.Pos())
		}
		return
	}
	switch e := e.(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.StarExpr, *ast.SliceExpr:
		f.objectValues(f.object(e), how, seen, out)
	case *ast.UnaryExpr:
		f.exprValues(e.X, how, 0, seen, out)
	case *ast.IndexExpr:
		f.exprValues(e.X, itsElements, 0, seen, out)
	case *ast.CompositeLit:
		for _, el := range e.Elts {
			if kv, ok := el.(*ast.KeyValueExpr); ok {
				if how == itsKeys {
					f.exprValues(kv.Key, itself, 0, seen, out)
					continue
				}
				el = kv.Value
			}
			if how == itsElements {
				if inner, ok := el.(*ast.CompositeLit); ok {
					if _, isStruct := f.info.TypeOf(inner).Underlying().(*types.Struct); !isStruct {
						f.exprValues(inner, itsElements, 0, seen, out) // [][2]string
					}
					continue
				}
				f.exprValues(el, itself, 0, seen, out)
			}
		}
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return
		}
		left, right := map[string][]token.Pos{}, map[string][]token.Pos{}
		f.exprValues(e.X, itself, 0, maps.Clone(seen), left)
		f.exprValues(e.Y, itself, 0, maps.Clone(seen), right)
		if len(left) == 0 {
			left["*"] = nil
		}
		if len(right) == 0 {
			right["*"] = nil
		}
		for l := range left {
			for r := range right {
				out[l+r] = append(out[l+r], e.Pos())
			}
		}
	case *ast.CallExpr:
		if tv := f.info.Types[e.Fun]; tv.IsType() { // a conversion
			f.exprValues(e.Args[0], how, 0, seen, out)
			return
		}
		fn := f.object(e.Fun)
		if fn == nil {
			if lit, ok := e.Fun.(*ast.FuncLit); ok {
				f.litReturns(lit, nth, how, seen, out)
			}
			return
		}
		if fn.Pkg() == nil || !strings.HasPrefix(fn.Pkg().Path(), "fabrun/") {
			f.library(fn, e, how, nth, seen, out)
			return
		}
		if seen[seenFlow{fn, how, nth}] {
			return
		}
		seen[seenFlow{fn, how, nth}] = true
		for _, held := range append(slices.Clone(f.funcs[fn]), fn) {
			for _, r := range f.rets[held] {
				switch {
				case nth < len(r):
					f.exprValues(r[nth], how, 0, seen, out)
				case len(r) == 1:
					f.exprValues(r[0], how, nth, seen, out)
				}
			}
		}
	}
}

func (f *flow) litReturns(lit *ast.FuncLit, nth int, how flowHow, seen map[seenFlow]bool, out map[string][]token.Pos) {
	ast.Inspect(lit.Body, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok && nth < len(r.Results) {
			f.exprValues(r.Results[nth], how, 0, seen, out)
		}
		_, inner := n.(*ast.FuncLit)
		return !inner || n == ast.Node(lit)
	})
}

// library is what a function of others gives back: what it was given, for those
// that only choose among their arguments or copy them; else unknown.
func (f *flow) library(fn types.Object, call *ast.CallExpr, how flowHow, nth int, seen map[seenFlow]bool, out map[string][]token.Pos) {
	name := fn.Name()
	if fn.Pkg() != nil {
		name = fn.Pkg().Path() + "." + name
	}
	switch name {
	case "cmp.Or":
		for _, a := range call.Args {
			f.exprValues(a, how, 0, seen, out)
		}
	case "append", "slices.Concat", "slices.Clone", "slices.Sorted", "slices.Compact":
		for i, a := range call.Args {
			if name == "append" && i > 0 && !call.Ellipsis.IsValid() {
				f.exprValues(a, itself, 0, seen, out)
			} else {
				f.exprValues(a, how, 0, seen, out)
			}
		}
	case "maps.Keys":
		f.exprValues(call.Args[0], itsKeys, 0, seen, out)
	case "strings.Cut":
		whole, sep := map[string][]token.Pos{}, map[string][]token.Pos{}
		f.exprValues(call.Args[0], itself, 0, seen, whole)
		f.exprValues(call.Args[1], itself, 0, seen, sep)
		for s := range sep {
			for w, at := range whole {
				before, after, _ := strings.Cut(w, s)
				part := []string{before, after, ""}[nth]
				out[part] = append(out[part], at...)
			}
		}
	case "fmt.Sprintf":
		if tv := f.info.Types[call.Args[0]]; tv.Value != nil {
			s := verbsOf.ReplaceAllString(constant.StringVal(tv.Value), "*")
			out[s] = append(out[s], call.Pos())
		}
	default:
		out["*"] = append(out["*"], call.Pos())
	}
}

// field is a field of a struct type of ours, by package and "Type.Field".
func (f *flow) field(pkg, name string) types.Object {
	typ, field, _ := strings.Cut(name, ".")
	o := f.pkgs["fabrun/"+pkg].Scope().Lookup(typ)
	if o == nil {
		return nil
	}
	st, ok := o.Type().Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	for i := range st.NumFields() {
		if st.Field(i).Name() == field {
			return st.Field(i)
		}
	}
	return nil
}

// verbsOf are the places of a format.
var verbsOf = regexp.MustCompile(`%[-+# 0-9.]*[a-z]`)

// emitted is every ID that reaches one of the fields, with the places where it
// is written. "" is nothing, and the tables of package finding emit nothing.
func emitted(t *testing.T, fields ...[2]string) map[string]string {
	t.Helper()
	f, err := ownFlow()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range fields {
		o := f.field(name[0], name[1])
		if o == nil {
			t.Fatalf("%s has no %s", name[0], name[1])
		}
		for id, at := range f.values(o) {
			if id != "" && len(at) > 0 {
				p := f.fset.Position(at[0])
				out[id] = filepath.Base(filepath.Dir(p.Filename)) + "/" + filepath.Base(p.Filename) + ":" + strconv.Itoa(p.Line)
			}
		}
	}
	return out
}

// TestEveryIDInDocs: an ID that the code writes is a row of the catalogue,
// and no row is left of one that nothing writes.
func TestEveryIDInDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("type-checks the program")
	}
	ids := func(topics []finding.Topic) (out []string) {
		for _, x := range topics {
			out = append(out, x.ID)
		}
		return out
	}
	var kinds, causes []string
	for _, k := range finding.Kinds() {
		kinds = append(kinds, k.ID)
	}
	for _, c := range watch.Causes() {
		causes = append(causes, c[0])
	}
	for _, c := range []struct {
		what, add string
		rows      []string
		fields    [][2]string
	}{
		{"finding", "add the row to topology/finding/kinds.go, then make docs", kinds, [][2]string{{"topology/finding", "Finding.ID"}}},
		{"rule", "add the row to rules in topology/finding/topics.go, then make docs", ids(finding.Rules()), [][2]string{{"envgen", "Var.Rule"}, {"envgen", "port.rejectID"}}},
		{"event", "add the row to events in topology/finding/topics.go, then make docs", ids(finding.Events()), [][2]string{{"launcher/watch", "Event.ID"}, {"launcher/watch", "Verdict.FatalErrors"}}},
		{"cause", "add its sentence to launcher/watch/causes.go, then make docs", causes, [][2]string{{"launcher/watch", "Event.Cause"}, {"launcher/watch", "Verdict.Cause"}}},
	} {
		if !slices.IsSorted(c.rows) {
			t.Errorf("the rows of the %ss are not in the order of their IDs", c.what)
		}
		written := emitted(t, c.fields...)
		for _, id := range slices.Sorted(maps.Keys(written)) {
			if !slices.ContainsFunc(c.rows, func(row string) bool { return rowIs(row, id) }) {
				t.Errorf("%s: the %s %q has no row: %s", written[id], c.what, id, c.add)
			}
		}
		for _, row := range c.rows {
			if _, ok := written[row]; !ok {
				t.Errorf("the %s %q has a row, and nothing makes one: remove the row, then make docs", c.what, row)
			}
		}
	}
}

// rowIs says whether a row is that of an ID: the same, or one of its numbers.
func rowIs(row, id string) bool {
	prefix, many := strings.CutSuffix(row, "*")
	return row == id || many && id != "*" && strings.HasPrefix(id, prefix)
}
