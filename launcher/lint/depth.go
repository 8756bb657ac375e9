package lint

import "slices"

// maxNesting is how deep commands, substitutions and arithmetic may lie in each
// other. The parser calls itself for each level, and a stack that overflows ends
// the program; people's scripts are some ten deep.
const maxNesting = 1000

// tooDeep returns the line at which a script is nested deeper than maxNesting.
// It counts what opens and closes without regard to quotes, which can only count
// too much.
func tooDeep(src []byte) (line int, deep bool) {
	depth, signs := 0, 0
	line = 1
	for i := 0; i < len(src); i++ {
		switch c := src[i]; c {
		case '\n':
			line++
			signs = 0
		case '(', '{', '[':
			depth++
		case ')', '}', ']':
			depth = max(0, depth-1)
		case '!', '~', '+', '-': // each may stand before another
			signs++
		case '&', '|': // "a && ! b": the sign is another command's
			signs = 0
		default:
			if c < 'a' || c > 'z' || i > 0 && isWord(src[i-1]) {
				continue
			}
			end := i
			for end < len(src) && isWord(src[end]) {
				end++
			}
			switch word := string(src[i:end]); {
			case slices.Contains([]string{"if", "while", "until", "for", "case", "select", "time", "coproc", "function"}, word):
				depth++
			case slices.Contains([]string{"fi", "done", "esac"}, word):
				depth = max(0, depth-1)
			}
			i = end - 1
		}
		if depth > maxNesting || signs > maxNesting {
			return line, true
		}
	}
	return 0, false
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
