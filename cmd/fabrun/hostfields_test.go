package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unreadFields are fields of a Host that no decision reads, and why they are there.
var unreadFields = map[string]string{
	"CounterSample.At": known, "HCA.NodeGUID": known, "HCA.NodeDesc": known, "Host.OS": known, "MIG.Profile": known, "PCIDevice.IOMMUGroup": known,
	"PCIDevice.MaxPayload": known, "Port.SMSL": known, "Port.CapMask": known, "Port.DefaultTOS": known, "Limits.EphemeralLo": known, "Limits.EphemeralHi": known,
	"Netdev.Carrier": known, "Netdev.MAC": known, "Netdev.VLAN": known, "Host.RDMANetns": known,
	"Route.Src": routed, "RouteRule.Priority": routed, "RouteRule.From": routed, "RouteRule.To": routed, "RouteRule.In": routed, "RouteRule.Out": routed, "RouteRule.Table": routed,
}

// What the reasons above say once for many.
const (
	known  = "a snapshot has it because it is read: who gets one as the report of a fault looks for it"
	routed = "policy routing: the route of a rail is taken from the tables without it, until a rule is seen to matter"
)

// assigned are the places of fields on the left of an assignment.
func assigned(t *testing.T) map[string]bool {
	out := map[string]bool{}
	fset := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for _, left := range a.Lhs {
				if sel, ok := left.(*ast.SelectorExpr); ok {
					at := fset.Position(sel.Sel.Pos())
					out[fmt.Sprintf("%s:%d:%d", filepath.Base(at.Filename), at.Line, at.Column)] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestHabitsHostFieldsAreRead: what is discovered of a machine serves a decision, a
// check or a page, or another fact.
func TestHabitsHostFieldsAreRead(t *testing.T) {
	if testing.Short() {
		t.Skip("type-checks the program")
	}
	f, err := ownFlow()
	if err != nil {
		t.Fatal(err)
	}
	read := map[types.Object]bool{}
	set := assigned(t)
	for sel, s := range f.info.Selections {
		at := f.fset.Position(sel.Sel.Pos())
		if s.Kind() == types.FieldVal && !set[fmt.Sprintf("%s:%d:%d", filepath.Base(at.Filename), at.Line, at.Column)] {
			read[s.Obj()] = true
		}
	}
	topology := f.pkgs["fabrun/topology"]
	var unread []string
	for _, name := range topology.Scope().Names() {
		o := topology.Scope().Lookup(name)
		if filepath.Base(f.fset.Position(o.Pos()).Filename) != "host.go" {
			continue
		}
		st, ok := o.Type().Underlying().(*types.Struct)
		if _, isType := o.(*types.TypeName); !ok || !isType {
			continue
		}
		for v := range st.Fields() {
			if v.Exported() && !read[v] {
				unread = append(unread, name+"."+v.Name())
			}
		}
	}
	for _, name := range unread {
		if unreadFields[name] == "" {
			t.Errorf("topology.%s is read by nobody: use it, or take it away", name)
		}
	}
	for name := range unreadFields {
		if !slices.Contains(unread, name) {
			t.Errorf("%s is read now: take it from the list", name)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(unread, "\n"))
	}
}
