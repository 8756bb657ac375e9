package cmdline

import (
	"slices"
	"strings"
)

// grammar is how the words between launcher and program are read.
type grammar struct {
	split  func(g *grammar, words []string, from int) App
	args   map[string]int // canonical option name → number of values; optional marks one that only '=' gives
	alias  map[string]string
	short  map[byte]string   // one-letter options
	dashed map[string]string // whole words with one dash, as typed → canonical option name
	colon  bool              // a word ":" separates applications
	// opaque options make the launcher take its applications from a file:
	// nothing may be added beside them.
	opaque []string
}

// optional is the arity of an option whose value is only ever joined to it;
// perhaps of one that may take the next word, in a way that is not documented.
const (
	optional = -1
	perhaps  = -2
)

// Option is one option of the launcher as it stands in the command line.
type Option struct {
	Name   string   // canonical, without dashes: "np", "x", "mca"
	At     int      // index of its word
	Words  int      // how many words it takes, its own included
	Values []string // its values, also where they are joined to it
}

// App is one application of a command line: its options, then its program.
type App struct {
	From, To int // its words are [From, To) of the command line
	Options  []Option
	Program  int    // index of the program's word; To when there is none
	Dashes   int    // index of a "--" that ends the options; -1
	Doubt    string // why Program may be wrong; "" when it is certain
}

func (c *App) add(name string, at, words int, values ...string) {
	c.Options = append(c.Options, Option{Name: name, At: at, Words: words, Values: values})
}

func (c *App) unsure(why string) {
	if c.Doubt == "" {
		c.Doubt = why
	}
}

// All returns the options of these names, in their order.
func (c *App) All(names ...string) []Option {
	var out []Option
	for _, o := range c.Options {
		if slices.Contains(names, o.Name) {
			out = append(out, o)
		}
	}
	return out
}

// Last returns the last option of these names, which is the one that counts;
// nil where there is none.
func (c *App) Last(names ...string) *Option {
	if all := c.All(names...); len(all) > 0 {
		return &all[len(all)-1]
	}
	return nil
}

// table makes an arity map from lists of names.
func table(flags, one, two string) map[string]int {
	m := map[string]int{}
	for n, list := range []string{flags, one, two} {
		for _, name := range strings.Fields(list) {
			m[name] = n
		}
	}
	return m
}

// splitOpenMPI4 reads left to right: a word with two dashes is a long name, a
// word with one dash is first looked up whole, then split into letters. There
// is no '=' form.
func splitOpenMPI4(g *grammar, words []string, from int) App {
	c := App{From: from, To: len(words), Program: len(words), Dashes: -1}
	for i := from; i < len(words); i++ {
		w := words[i]
		if w == "--" {
			c.Dashes, c.Program = i, i+1
			return c
		}
		if !strings.HasPrefix(w, "-") {
			c.Program = i
			return c
		}
		name := strings.TrimPrefix(strings.TrimPrefix(w, "-"), "-")
		n, known := g.args[name]
		if !known {
			c.unsure("mpirun does not know the option " + w)
			c.add(name, i, 1)
			continue
		}
		i = c.take(g, words, name, i, n)
	}
	return c
}

// take adds an option whose n values are the words that follow, and returns
// the index of its last word.
func (c *App) take(g *grammar, words []string, name string, i, n int) int {
	if n == optional {
		n = 0
	}
	if i+n >= len(words) {
		c.unsure("a value is missing after " + words[i])
		n = len(words) - 1 - i
	}
	if long, ok := g.alias[name]; ok {
		name = long
	}
	c.add(name, i, 1+n, words[i+1:i+1+n]...)
	return i + n
}

// splitOpenMPI5 follows PRRTE's preparation for getopt_long: a word of one dash
// and more than two characters counts as long, a word that ends in "mca" takes
// two values, '=' joins a value, and unique beginnings are accepted.
func splitOpenMPI5(g *grammar, words []string, from int) App {
	c := App{From: from, To: len(words), Program: len(words), Dashes: -1}
	for i := from; i < len(words); i++ {
		w := words[i]
		if w == "--" {
			c.Dashes, c.Program = i, i+1
			return c
		}
		if !strings.HasPrefix(w, "-") || w == "-" {
			c.Program = i
			return c
		}
		long := len(w) > 2
		name, value, joined := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(w, "-"), "-"), "=")
		if long {
			name = unique(g.args, name)
		}
		n, known := g.args[name]
		switch {
		case !known && strings.HasSuffix(name, "mca"):
			i = c.take(g, words, name, i, 2)
		case !known:
			c.unsure("mpirun does not know the option " + w)
			c.add(name, i, 1)
		case joined:
			if short, ok := g.alias[name]; ok {
				name = short
			}
			c.add(name, i, 1, value)
		default:
			i = c.take(g, words, name, i, n)
		}
	}
	return c
}

// unique completes the beginning of a long name, where only one begins so.
func unique(args map[string]int, name string) string {
	if _, ok := args[name]; ok || name == "" {
		return name
	}
	found := ""
	for full := range args {
		if len(full) > 1 && strings.HasPrefix(full, name) {
			if found != "" {
				return name
			}
			found = full
		}
	}
	if found == "" {
		return name
	}
	return found
}

// splitHydra strips all leading dashes, ignores case, and takes "NAME=VALUE"
// after genv and env as one word. A bare "--" is an error to Hydra.
func splitHydra(g *grammar, words []string, from int) App {
	c := App{From: from, To: len(words), Program: len(words), Dashes: -1}
	for i := from; i < len(words); i++ {
		w := words[i]
		if !strings.HasPrefix(w, "-") {
			c.Program = i
			return c
		}
		name, value, joined := strings.Cut(strings.TrimLeft(w, "-"), "=")
		if _, exact := g.args[name]; !exact {
			name = strings.ToLower(name)
		}
		n, known := g.args[name]
		switch {
		case !known:
			c.unsure("mpiexec does not know the option " + w)
			c.add(name, i, 1)
		case joined:
			if long, ok := g.alias[name]; ok {
				name = long
			}
			c.add(name, i, 1, value)
		case n == perhaps:
			if i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
				c.unsure("whether " + w + " takes the word behind it is not known")
			}
			c.add(name, i, 1)
		case n == 2 && i+1 < len(words) && strings.Contains(words[i+1], "="):
			k, v, _ := strings.Cut(words[i+1], "=")
			c.add(name, i, 2, k, v)
			i++
		default:
			i = c.take(g, words, name, i, n)
		}
	}
	return c
}

// splitGetopt is getopt_long with a leading '+': parsing stops at the first
// word that is no option. Options that SPANK plugins add are read as "value
// after =, otherwise unknown".
func splitGetopt(g *grammar, words []string, from int) App {
	c := App{From: from, To: len(words), Program: len(words), Dashes: -1}
	for i := from; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--":
			c.Dashes, c.Program = i, i+1
			return c
		case !strings.HasPrefix(w, "-") || w == "-":
			c.Program = i
			return c
		case strings.HasPrefix(w, "--"):
			i = c.long(g, words, i, w[2:])
		default:
			i = c.letters(g, words, i, w[1:])
		}
	}
	return c
}

// long reads one --name, --name=value or --name value.
func (c *App) long(g *grammar, words []string, i int, word string) int {
	name, value, joined := strings.Cut(word, "=")
	name = unique(g.args, name)
	n, known := g.args[name]
	switch {
	case joined:
		if long, ok := g.alias[name]; ok {
			name = long
		}
		c.add(name, i, 1, value)
		return i
	case !known:
		c.unsure("whether --" + name + " takes a value is not known to fabrun")
		c.add(name, i, 1)
		return i
	}
	return c.take(g, words, name, i, n)
}

// letters reads a cluster of one-letter options, the last of which may have
// its value joined or in the next word.
func (c *App) letters(g *grammar, words []string, i int, word string) int {
	for j := 0; j < len(word); j++ {
		name, ok := g.short[word[j]]
		if !ok {
			c.unsure("fabrun does not know the option -" + word[j:j+1])
			c.add(word[j:j+1], i, 1)
			return i
		}
		n := g.args[name]
		switch {
		case n == 0:
			c.add(name, i, 1)
		case n == optional || j+1 < len(word):
			c.add(name, i, 1, strings.TrimPrefix(word[j+1:], "="))
			return i
		default:
			return c.take(g, words, name, i, n)
		}
	}
	return i
}

// splitArgparse is Python's argparse with a positional and the rest: dashed and
// underscored spellings, unique beginnings, '=' or the next word.
func splitArgparse(g *grammar, words []string, from int) App {
	c := App{From: from, To: len(words), Program: len(words), Dashes: -1}
	for i := from; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--":
			c.Dashes, c.Program = i, i+1
			return c
		case !strings.HasPrefix(w, "-") || w == "-":
			c.Program = i
			return c
		case g.dashed[w] != "":
			i = c.take(g, words, g.dashed[w], i, g.args[g.dashed[w]])
		case strings.HasPrefix(w, "--"):
			name, value, joined := strings.Cut(w[2:], "=")
			word := strings.ReplaceAll(name, "_", "-")
			if joined {
				word += "=" + value
			}
			i = c.long(g, words, i, word)
		default:
			i = c.letters(g, words, i, w[1:])
		}
	}
	return c
}
