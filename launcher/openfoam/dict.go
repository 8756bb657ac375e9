package openfoam

import (
	"fmt"
	"strconv"
	"strings"
)

// maxDepth bounds dictionaries and lists inside each other.
const maxDepth = 64

// Dict is one dictionary: its entries in the order of the file.
type Dict struct {
	Entries    []Entry
	Directives []Directive // #include and its kin, which are left alone
	parent     *Dict
}

// Entry is one keyword with its value: a dictionary, or the words up to ';'.
type Entry struct {
	Key   string
	Line  int // counted from 1
	Words []Word
	Dict  *Dict // nil: the value is Words
}

// Word is one token of a value.
type Word struct {
	Text string
	Kind Kind
}

// Kind is what a token is.
type Kind int

// The kinds of token.
const (
	Plain     Kind = iota // word or number
	Quoted                // "text", without the quotes
	Macro                 // $name, without the dollar
	Directed              // #calc and its kin, without the hash
	Verbatim              // #{ … #}
	Punct                 // one of ( ) [ ] { } ;
	endOfText             // there is no more
)

// Directive is a line that begins with '#'.
type Directive struct {
	Name string // "include", "if", …
	Args string
	Line int
}

// Parse reads a dictionary file. What is no dictionary is an error with its line.
func Parse(text []byte) (*Dict, error) {
	p := &parser{text: string(text), line: 1}
	d := &Dict{}
	if err := p.entries(d, 0); err != nil {
		return nil, err
	}
	return d, nil
}

// Lookup returns the last entry of that keyword in this dictionary, nil where
// there is none. The last one counts, as in OpenFOAM.
func (d *Dict) Lookup(key string) *Entry {
	if d == nil {
		return nil
	}
	for i := len(d.Entries) - 1; i >= 0; i-- {
		if d.Entries[i].Key == key {
			return &d.Entries[i]
		}
	}
	return nil
}

// Sub returns the dictionary of that keyword, nil where there is none.
func (d *Dict) Sub(key string) *Dict {
	if e := d.Lookup(key); e != nil {
		return e.Dict
	}
	return nil
}

// maxMacros bounds how many macros one value is followed through.
const maxMacros = 16

// Resolve returns the plain words of an entry's value with macros replaced by
// what this file gives them. ok is false where a word comes from elsewhere
// (#calc, #include, the environment); why names it.
func (d *Dict) Resolve(e *Entry) (words []string, why string, ok bool) {
	budget := maxMacros
	return d.resolve(e.Words, &budget)
}

func (d *Dict) resolve(in []Word, budget *int) (words []string, why string, ok bool) {
	for _, w := range in {
		switch w.Kind {
		case Plain, Quoted, Punct:
			words = append(words, w.Text)
		case Macro:
			if *budget--; *budget < 0 {
				return nil, "$" + w.Text + " refers to itself", false
			}
			scope, target := d.macro(w.Text)
			if target == nil || target.Dict != nil {
				return nil, "$" + w.Text + " is not set in this file", false
			}
			inner, why, ok := scope.resolve(target.Words, budget)
			if !ok {
				return nil, why, false
			}
			words = append(words, inner...)
		default:
			return nil, "#" + w.Text + " is computed by OpenFOAM", false
		}
	}
	return words, "", true
}

// macro finds what $name means: the scope itself and then those around it;
// $:name and $!name begin at the top, and dots lead into dictionaries.
func (d *Dict) macro(name string) (*Dict, *Entry) {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "{"), "}")
	scope, outward := d, true
	if rest, top := strings.CutPrefix(strings.Replace(name, "!", ":", 1), ":"); top {
		for scope.parent != nil {
			scope = scope.parent
		}
		name, outward = rest, false
	}
	for strings.HasPrefix(name, "..") && scope.parent != nil {
		scope, name, outward = scope.parent, name[1:], false
	}
	name = strings.TrimPrefix(name, ".")
	for ; scope != nil; scope = scope.parent {
		at, rest := scope, name
		for {
			if e := at.Lookup(rest); e != nil {
				return at, e
			}
			head, tail, more := strings.Cut(strings.ReplaceAll(rest, "/", "."), ".")
			sub := at.Sub(head)
			if !more || sub == nil {
				break
			}
			at, rest = sub, tail
		}
		if !outward {
			break
		}
	}
	return nil, nil
}

// Int returns the whole number that a keyword has. ok is false where it is
// absent or not known; why says which, and is "" where it is absent.
func (d *Dict) Int(key string) (n int, why string, ok bool) {
	e := d.Lookup(key)
	if e == nil {
		return 0, "", false
	}
	words, why, known := d.Resolve(e)
	if !known {
		return 0, why, false
	}
	if len(words) == 1 {
		if n, err := strconv.Atoi(words[0]); err == nil {
			return n, "", true
		}
	}
	return 0, fmt.Sprintf("%s is %s, not a whole number", key, quoted(strings.Join(words, " "))), false
}

// WordOf returns the one word that a keyword has, "" where it has none or more.
func (d *Dict) WordOf(key string) string {
	e := d.Lookup(key)
	if e == nil {
		return ""
	}
	if words, _, ok := d.Resolve(e); ok && len(words) == 1 {
		return words[0]
	}
	return ""
}

// Ints returns the whole numbers of a list, "(2 2 1)".
func (d *Dict) Ints(key string) ([]int, bool) {
	e := d.Lookup(key)
	if e == nil {
		return nil, false
	}
	words, _, ok := d.Resolve(e)
	if !ok || len(words) < 2 || words[0] != "(" || words[len(words)-1] != ")" {
		return nil, false
	}
	out := make([]int, 0, len(words)-2)
	for _, w := range words[1 : len(words)-1] {
		n, err := strconv.Atoi(w)
		if err != nil {
			return nil, false
		}
		out = append(out, n)
	}
	return out, true
}

type parser struct {
	text string
	pos  int
	line int
}

func (p *parser) errorf(line int, format string, args ...any) error {
	return fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, args...))
}

// entries reads up to the end of the text, or the '}' that ends d.
func (p *parser) entries(d *Dict, depth int) error {
	if depth > maxDepth {
		return p.errorf(p.line, "more than %d dictionaries inside each other", maxDepth)
	}
	for {
		w, line, err := p.next()
		if err != nil {
			return err
		}
		switch w.Kind {
		case endOfText:
			if depth > 0 {
				return p.errorf(line, "a '{' is never closed")
			}
			return nil
		case Directed:
			d.Directives = append(d.Directives, Directive{w.Text, p.restOfLine(), line})
		case Macro:
			// "$name;" copies a dictionary's entries in.
			d.Directives = append(d.Directives, Directive{"$", w.Text, line})
		case Verbatim:
			return p.errorf(line, "#{ without a keyword before it")
		case Punct:
			switch {
			case w.Text == ";":
			case w.Text == "}" && depth > 0:
				return nil
			default:
				return p.errorf(line, "%q where a keyword was wanted", w.Text)
			}
		default:
			e, err := p.value(w.Text, line, d, depth)
			if err != nil {
				return err
			}
			d.Entries = append(d.Entries, e)
		}
	}
}

// value reads what follows a keyword.
func (p *parser) value(key string, line int, d *Dict, depth int) (Entry, error) {
	e := Entry{Key: key, Line: line}
	open := make([]byte, 0, 8)
	for {
		w, at, err := p.next()
		if err != nil {
			return e, err
		}
		switch {
		case w.Kind == endOfText:
			return e, p.errorf(line, "%s has no ';' behind it", quoted(key))
		case w.Kind != Punct:
		case w.Text == ";" && len(open) == 0:
			return e, nil
		case w.Text == "{" && len(e.Words) == 0:
			e.Dict = &Dict{parent: d}
			return e, p.entries(e.Dict, depth+1)
		case w.Text == "(" || w.Text == "[" || w.Text == "{":
			if len(open) >= maxDepth {
				return e, p.errorf(at, "more than %d lists inside each other", maxDepth)
			}
			open = append(open, w.Text[0])
		case w.Text != ";":
			if len(open) == 0 || open[len(open)-1] != opener(w.Text[0]) {
				return e, p.errorf(at, "%q in the value of %s, which begins on line %d: is a ';' missing?", w.Text, quoted(key), line)
			}
			open = open[:len(open)-1]
		}
		e.Words = append(e.Words, w)
	}
}

func opener(c byte) byte {
	switch c {
	case ')':
		return '('
	case ']':
		return '['
	}
	return '{'
}

// restOfLine takes what follows a directive, without a comment behind it.
func (p *parser) restOfLine() string {
	rest := p.text[p.pos:]
	if i := strings.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[:i]
	}
	p.pos += len(rest)
	if i := strings.Index(rest, "//"); i >= 0 {
		rest = rest[:i]
	}
	return strings.TrimSpace(rest)
}

// next returns the next token and its line.
func (p *parser) next() (Word, int, error) {
	if err := p.skip(); err != nil {
		return Word{}, p.line, err
	}
	line := p.line
	if p.pos >= len(p.text) {
		return Word{Kind: endOfText}, line, nil
	}
	rest := p.text[p.pos:]
	switch c := rest[0]; {
	case strings.IndexByte("()[]{};", c) >= 0:
		p.pos++
		return Word{rest[:1], Punct}, line, nil
	case c == '"':
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				p.advance(i + 1)
				return Word{rest[1:i], Quoted}, line, nil
			}
		}
		return Word{}, line, p.errorf(line, "a '\"' is never closed")
	case strings.HasPrefix(rest, "#{"):
		end := strings.Index(rest, "#}")
		if end < 0 {
			return Word{}, line, p.errorf(line, "#{ is never closed by #}")
		}
		p.advance(end + 2)
		return Word{rest[2:end], Verbatim}, line, nil
	case c == '#':
		n := 1
		for n < len(rest) && isLetter(rest[n]) {
			n++
		}
		p.pos += n
		return Word{rest[1:n], Directed}, line, nil
	case c == '$':
		if strings.HasPrefix(rest, "${") {
			// A name may itself be made of macros: ${_${X}}.
			end, open := 1, 0
			for ; end < len(rest); end++ {
				if rest[end] == '{' {
					open++
				} else if rest[end] == '}' {
					if open--; open == 0 {
						break
					}
				}
			}
			if end == len(rest) {
				return Word{}, line, p.errorf(line, "${ is never closed")
			}
			p.advance(end + 1)
			return Word{rest[1 : end+1], Macro}, line, nil
		}
		n := 1 + wordLength(rest[1:])
		p.pos += n
		return Word{rest[1:n], Macro}, line, nil
	}
	n := max(1, wordLength(rest))
	p.pos += n
	return Word{rest[:n], Plain}, line, nil
}

// wordLength is how far a word reaches: parentheses belong to it while they
// pair, as in div(phi,U).
func wordLength(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '(':
			depth++
		case c == ')':
			if depth == 0 {
				return i
			}
			depth--
		case c <= ' ' || strings.IndexByte(`;{}[]"`, c) >= 0:
			return i
		case c == '/' && i+1 < len(s) && (s[i+1] == '/' || s[i+1] == '*'):
			return i
		}
	}
	return len(s)
}

// advance moves over text that may hold line ends.
func (p *parser) advance(n int) {
	p.line += strings.Count(p.text[p.pos:p.pos+n], "\n")
	p.pos += n
}

// skip moves over blanks and comments.
func (p *parser) skip() error {
	for p.pos < len(p.text) {
		rest := p.text[p.pos:]
		switch {
		case rest[0] <= ' ':
			p.advance(1)
		case strings.HasPrefix(rest, "//"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			p.pos += end
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return p.errorf(p.line, "a comment /* is never closed")
			}
			p.advance(end + 4)
		default:
			return nil
		}
	}
	return nil
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// quoted makes text from a file printable and bounded.
func quoted(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}
