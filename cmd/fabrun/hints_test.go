package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// costly is what a command in a hint may cost others than the job, and the words
// that have to stand beside it.
var costly = []struct{ command, says string }{
	{`mlnx_qos -i .*--|mlnx_qos -i %s --|> /sys/class/net|ip link set .*mtu|ethtool -A`, `finding\.ForPort`},
	{`tc/%d/traffic_class|cma_roce_mode -d`, `finding\.ForRDMA`},
	{`sysctl -w|cpupower|systemctl|remount`, `finding\.ForHost`},
	{`iommu=pt|BIOS`, `finding\.Reboots|setpci|as root`},
	{`mlxconfig`, `finding\.InCard`},
	{`reboot|reset `, `drain|finding\.`},
	{`ibportstate -C|ip link set .* up`, `finding\.OnPurpose`},
	{`modprobe|setpci|chmod [0-9]`, `as root`},
	{`opensm`, `none other`},
	{`makestep`, `idle`},
	{`-force`, `deletes`},
	{`\brm -|mkfs|kill -9 `, `never fits`},
}

// TestHintsSayWhatTheyCost: whoever follows a hint blindly is told before what it
// takes from others: results, a port's other traffic, a reboot.
func TestHintsSayWhatTheyCost(t *testing.T) {
	hints := 0
	for _, root := range []string{"../../cmd/fabrun", "../../launcher", "../../envgen", "../../topology"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			for _, h := range hintsOf(file) {
				hints++
				for _, c := range costly {
					if regexp.MustCompile(c.command).MatchString(h.text) && !regexp.MustCompile(c.says).MatchString(h.text) {
						t.Errorf("%s: a hint with %q does not say %q:\n\t%s", set.Position(h.pos), c.command, c.says, h.text)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if hints < 300 {
		t.Errorf("%d hints were found: the test does not see them any more", hints)
	}
}

type hintText struct {
	pos  token.Pos
	text string
}

// hintsOf collects the texts that may become hints: what is given to a field or
// variable of that name, and the last argument of a call that says a finding.
func hintsOf(file *ast.File) []hintText {
	var out []hintText
	add := func(e ast.Expr) {
		if text := words(e); strings.Contains(text, " ") {
			out = append(out, hintText{e.Pos(), text})
		}
	}
	isHint := func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.Ident:
			return strings.EqualFold(e.Name, "hint") || e.Name == "fix" || e.Name == "noSubnetManager"
		case *ast.SelectorExpr:
			return e.Sel.Name == "Hint"
		}
		return false
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if isHint(n.Key) {
				add(n.Value)
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if isHint(name) && i < len(n.Values) {
					add(n.Values[i])
				}
			}
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if isHint(l) && len(n.Rhs) == len(n.Lhs) {
					add(n.Rhs[i])
				}
			}
		case *ast.CallExpr:
			name := ""
			switch f := n.Fun.(type) {
			case *ast.Ident:
				name = f.Name
			case *ast.SelectorExpr:
				name = f.Sel.Name
			}
			switch name {
			case "say", "add", "problem", "withHint", "usageError", "failed", "warned":
				if len(n.Args) > 1 {
					add(n.Args[len(n.Args)-1])
				}
			}
		case *ast.ReturnStmt:
			if len(n.Results) == 3 { // an ID, why, and a hint
				add(n.Results[2])
			}
		case *ast.CompositeLit: // a row of a table of findings
			if n.Type == nil && len(n.Elts) >= 4 {
				if _, keyed := n.Elts[0].(*ast.KeyValueExpr); !keyed {
					add(n.Elts[len(n.Elts)-1])
				}
			}
		}
		return true
	})
	return out
}

// words is what an expression says, with the names of the constants in it.
func words(e ast.Expr) string {
	var b strings.Builder
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				b.WriteString(n.Value[1 : len(n.Value)-1])
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "finding" {
				b.WriteString(" finding." + n.Sel.Name)
			}
		}
		return true
	})
	return b.String()
}
