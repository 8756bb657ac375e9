package lint

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word expands one word as far as it is known. What is not stays as written.
func (r *reader) word(w *syntax.Word) Word {
	out := Word{Static: true, Line: r.line(w), Source: r.source(w)}
	for _, part := range w.Parts {
		r.part(part, &out)
	}
	slices.Sort(out.Refs)
	out.Refs = slices.Compact(out.Refs)
	r.bound(w, &out)
	return out
}

func (r *reader) part(part syntax.WordPart, out *Word) {
	switch p := part.(type) {
	case *syntax.Lit:
		out.Text += unescape(p.Value)
	case *syntax.SglQuoted:
		out.Text += p.Value
	case *syntax.DblQuoted:
		for _, q := range p.Parts {
			if lit, ok := q.(*syntax.Lit); ok {
				out.Text += unescapeQuoted(lit.Value)
				continue
			}
			r.part(q, out)
		}
	case *syntax.ParamExp:
		r.param(p, out)
	case *syntax.CmdSubst:
		out.Static = false
		out.Text += r.source(p)
		out.Refs = append(out.Refs, r.refsIn(p)...)
		r.rendezvous(p)
		r.quiet(func() { r.stmts(p.Stmts) })
	case *syntax.ArithmExp:
		out.Static = false
		out.Text += r.source(p)
		out.Refs = append(out.Refs, r.refsIn(p)...)
		if lo, hi, ok := r.interval(p.X); ok && lo == hi {
			out.Static = true
			out.Text = strings.TrimSuffix(out.Text, r.source(p)) + itoa(lo)
		}
	default:
		out.Static = false
		out.Text += r.source(part)
	}
}

// quiet reads commands whose settings stay in a subshell.
func (r *reader) quiet(f func()) {
	n := len(r.s.Settings)
	f()
	r.s.Settings = r.s.Settings[:n]
}

func (r *reader) param(p *syntax.ParamExp, out *Word) {
	if p.Param == nil {
		out.Static = false
		out.Text += r.source(p)
		return
	}
	name := p.Param.Value
	out.Early = append(out.Early, name)
	known := r.vars[name]
	plain := p.Index == nil && !p.Length && !p.Excl && p.Slice == nil && p.Repl == nil && p.Names == 0
	switch {
	case plain && p.Exp == nil && len(known) == 1:
		out.Text += known[0].Text
		out.Static = out.Static && known[0].Static
		out.Refs = append(out.Refs, known[0].Refs...)
		return
	case plain && p.Exp != nil && (p.Exp.Op == syntax.DefaultUnset || p.Exp.Op == syntax.DefaultUnsetOrNull || p.Exp.Op == syntax.AssignUnset || p.Exp.Op == syntax.AssignUnsetOrNull):
		// What it is where nobody said otherwise.
		if len(known) == 1 && known[0].Static {
			out.Text += known[0].Text
			return
		}
		if p.Exp.Word != nil {
			w := r.word(p.Exp.Word)
			out.Text += w.Text
			out.Static = out.Static && w.Static
			out.Refs = append(out.Refs, w.Refs...)
		}
		out.Refs = append(out.Refs, name)
		return
	case p.Index != nil && isAll(r.source(p)):
		for i, e := range known {
			if i > 0 {
				out.Text += " "
			}
			out.Text += e.Text
			out.Static = out.Static && e.Static
			out.Refs = append(out.Refs, e.Refs...)
		}
		if len(known) > 0 {
			return
		}
	}
	out.Static = false
	out.Text += r.source(p)
	out.Refs = append(out.Refs, r.refsIn(p)...)
}

// isAll is "${a[@]}" or "${a[*]}".
func isAll(source string) bool {
	return strings.HasSuffix(source, "[@]}") || strings.HasSuffix(source, "[*]}")
}

// words expands a list of words, splitting as the shell does what comes out of
// an unquoted variable or "${array[@]}".
func (r *reader) words(ws []*syntax.Word) []Word {
	var out []Word
	for _, w := range ws {
		if len(out) > 4096 {
			break
		}
		if name, all, ok := lone(w); ok {
			known := r.vars[name]
			if all && len(known) > 0 {
				for _, e := range known {
					e.Early = append(slices.Clone(e.Early), name)
					out = append(out, e)
				}
				continue
			}
			if !all && len(known) == 1 && known[0].Text != "" && strings.ContainsAny(known[0].Text, " \t\n") {
				for _, f := range strings.Fields(known[0].Text) {
					piece := known[0]
					piece.Text = f
					piece.Early = append(slices.Clone(piece.Early), name)
					out = append(out, piece)
				}
				continue
			}
		}
		out = append(out, r.word(w))
	}
	return out
}

// lone reports whether a word is nothing but an unquoted variable, or an array
// with all its elements.
func lone(w *syntax.Word) (name string, all, ok bool) {
	if len(w.Parts) != 1 {
		return "", false, false
	}
	part, quoted := w.Parts[0], false
	if q, is := part.(*syntax.DblQuoted); is && len(q.Parts) == 1 {
		part, quoted = q.Parts[0], true
	}
	p, is := part.(*syntax.ParamExp)
	if !is || p.Param == nil || p.Exp != nil || p.Length || p.Excl || p.Slice != nil || p.Repl != nil {
		return "", false, false
	}
	if p.Index != nil {
		iw, is := p.Index.(*syntax.Word)
		if !is || (iw.Lit() != "@" && iw.Lit() != "*") {
			return "", false, false
		}
		return p.Param.Value, true, true
	}
	return p.Param.Value, false, !quoted
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// unescapeQuoted: within double quotes a backslash escapes only these.
func unescapeQuoted(s string) string {
	return strings.NewReplacer(`\"`, `"`, `\$`, `$`, `\\`, `\`, "\\`", "`", "\\\n", "").Replace(s)
}
