package lint

import (
	"strings"
	"testing"
)

// TestNestingIsBounded: what is nested beyond all reason is said, and not handed
// to the parser, whose stack it would overflow.
func TestNestingIsBounded(t *testing.T) {
	const n = 200_000
	for name, c := range map[string]struct {
		text string
		deep bool
	}{
		"braces":        {strings.Repeat("{ ", n), true},
		"subshells":     {strings.Repeat("(", n), true},
		"substitutions": {"echo " + strings.Repeat("$(", n), true},
		"in quotes":     {strings.Repeat(`"$(`, n), true},
		"expansions":    {"echo " + strings.Repeat("${a:-", n), true},
		"arithmetic":    {"echo $((" + strings.Repeat("!", n) + "1))", true},
		"indices":       {"echo $((" + strings.Repeat("a[", n), true},
		"conditions":    {strings.Repeat("if ", n), true},
		"loops":         {strings.Repeat("while ", n), true},
		"time":          {strings.Repeat("time ", n), true},
		"the last":      {strings.Repeat("(", maxNesting) + "true" + strings.Repeat(")", maxNesting), false},
		"many, not deep": {
			strings.Repeat("if true; then { echo $((1 - -1)) ${a[0]}; } ; fi\nfor i in 1 2; do ( a ) ; done\ncase x in x) ;; esac\n", 20_000), false,
		},
	} {
		line, deep := tooDeep([]byte("#!/bin/bash\n" + c.text))
		if deep != c.deep || deep && line != 2 {
			t.Errorf("%s: %v at line %d, want %v", name, deep, line, c.deep)
		}
		if !deep || len(c.text) > 1<<20 {
			continue
		}
		s := Read("x.sh", []byte("#!/bin/bash\n"+c.text))
		if len(s.Unread) != 1 || s.Unread[0].Line != 2 || !strings.Contains(s.Unread[0].Why, "nested") {
			t.Errorf("%s: %+v", name, s.Unread)
		}
	}
}
