package vars

import (
	"bytes"
	"encoding/json"
)

// RedactJSON takes the secrets out of every string of a JSON text, and leaves
// all the rest of it as it stands: arrays of strings are read as words of a
// command, and a "value" beside a secret "name" is one, too.
func RedactJSON(text []byte) []byte {
	var out bytes.Buffer
	var words []string // of the array of strings that is open
	name, key := "", ""
	inWords := false
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case '"':
			end := stringEnd(text, i)
			var s string
			if json.Unmarshal(text[i:end], &s) != nil { // cut, or no JSON: nothing is promised
				out.Write(text[i:end])
				i = end
				continue
			}
			safe := Redact(s)
			isKey := false
			if rest := bytes.TrimLeft(text[end:], " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
				key, isKey, safe = s, true, s
			}
			switch {
			case isKey:
			case inWords:
				words = append(words, s)
				if all := RedactWords(words); all[len(all)-1] != s {
					safe = all[len(all)-1]
				}
			case key == "name":
				name = s
			case key == "value" && Secret(name), Secret(key) && s != "":
				safe = Redacted
			}
			if safe == s {
				out.Write(text[i:end])
			} else {
				out.Write(quote(safe))
			}
			i = end
			continue
		case '[':
			rest := bytes.TrimLeft(text[i+1:], " \t\r\n")
			inWords, words = len(rest) > 0 && rest[0] == '"', nil
		case ']', '{', '}':
			inWords = false
			if c != ']' {
				name = ""
			}
		}
		out.WriteByte(text[i])
		i++
	}
	return out.Bytes()
}

// stringEnd is the index behind the string that begins at i.
func stringEnd(text []byte, i int) int {
	for j := i + 1; j < len(text); j++ {
		switch text[j] {
		case '\\':
			j++
		case '"':
			return j + 1
		}
	}
	return len(text)
}

func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return []byte(`""`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
