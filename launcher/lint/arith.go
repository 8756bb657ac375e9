package lint

import (
	"strconv"

	"mvdan.cc/sh/v3/syntax"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

const big = int64(1) << 40

// interval bounds an arithmetic expression over all runs: RANDOM is 0 to
// 32767, x % n is 0 to n-1, what is not known has no bounds.
func (r *reader) interval(x syntax.ArithmExpr) (lo, hi int64, ok bool) {
	switch e := x.(type) {
	case *syntax.ParenArithm:
		return r.interval(e.X)
	case *syntax.Word:
		return r.wordInterval(e)
	case *syntax.BinaryArithm:
		a, b, okx := r.interval(e.X)
		c, d, oky := r.interval(e.Y)
		if e.Op == syntax.Rem && oky && c == d && c > 0 {
			if okx && a >= 0 && b < c {
				return a, b, true
			}
			return 0, c - 1, true
		}
		if !okx || !oky || max(abs(a), abs(b), abs(c), abs(d)) > big {
			return 0, 0, false
		}
		switch e.Op {
		case syntax.Add:
			return a + c, b + d, true
		case syntax.Sub:
			return a - d, b - c, true
		case syntax.Mul:
			if a >= 0 && c >= 0 && b < 1<<20 && d < 1<<20 {
				return a * c, b * d, true
			}
		}
	}
	return 0, 0, false
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}

func (r *reader) wordInterval(w *syntax.Word) (lo, hi int64, ok bool) {
	name := w.Lit()
	if len(w.Parts) == 1 {
		if p, is := w.Parts[0].(*syntax.ParamExp); is && p.Param != nil && p.Exp == nil && p.Index == nil && !p.Length {
			name = p.Param.Value
		}
		if p, is := w.Parts[0].(*syntax.ArithmExp); is {
			return r.interval(p.X)
		}
	}
	if name == "RANDOM" {
		return 0, 32767, true
	}
	if known := r.vars[name]; len(known) == 1 && known[0].Static {
		name = known[0].Text
	}
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil || abs(n) > big {
		return 0, 0, false
	}
	return n, n, true
}

var shuf = lazy(`shuf\s+(?:-n\s*1\s+)?-i\s*([0-9]{1,6})-([0-9]{1,6})`)

// bound notes which numbers a value can be, whatever its form.
func (r *reader) bound(w *syntax.Word, out *Word) {
	if len(w.Parts) == 1 {
		part := w.Parts[0]
		if q, is := part.(*syntax.DblQuoted); is && len(q.Parts) == 1 {
			part = q.Parts[0]
		}
		switch p := part.(type) {
		case *syntax.ArithmExp:
			out.Lo, out.Hi, out.Number = r.interval(p.X)
			return
		case *syntax.ParamExp:
			if known := r.vars[paramName(p)]; p.Exp == nil && len(known) == 1 {
				out.Lo, out.Hi, out.Number = known[0].Lo, known[0].Hi, known[0].Number
				return
			}
		}
	}
	if m := shuf().FindStringSubmatch(out.Source); m != nil {
		lo, err1 := strconv.ParseInt(m[1], 10, 64)
		hi, err2 := strconv.ParseInt(m[2], 10, 64)
		out.Lo, out.Hi, out.Number = lo, hi, err1 == nil && err2 == nil
		return
	}
	if n, err := strconv.ParseInt(out.Text, 10, 64); err == nil {
		out.Lo, out.Hi, out.Number = n, n, true
	}
}

func paramName(p *syntax.ParamExp) string {
	if p.Param == nil {
		return ""
	}
	return p.Param.Value
}
