package vars

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Redacted stands for a secret.
const Redacted = "<redacted>"

// secretWords are words of a name that speak of a secret; secretParts do so
// within a word, too.
var (
	secretWords = []string{"KEY", "KEYS", "AUTH", "COOKIE", "URI", "CERT", "PASS", "PWD", "DSN"}
	secretParts = []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY"}
)

// Secret reports whether a variable's or an option's name speaks of a secret.
func Secret(name string) bool {
	name = strings.ToUpper(strings.Trim(name, " \t-"))
	if name == "PWD" || name == "OLDPWD" {
		return false // directories
	}
	if slices.ContainsFunc(secretParts, func(p string) bool { return strings.Contains(name, p) }) {
		return true
	}
	return slices.ContainsFunc(strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '-' || r == '.' }), func(w string) bool {
		return slices.Contains(secretWords, strings.TrimRight(w, "0123456789"))
	})
}

// values are secrets that can be told by their own form, as their issuers give
// them out. The groups are kept.
var values = sync.OnceValue(func() []*regexp.Regexp {
	var out []*regexp.Regexp
	for _, p := range []string{
		`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/"'\\@]+:[^\s/"'\\@]*(@)`,                            // http://user:password@
		`()\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b`,                                           // AWS
		`()\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,})`,              // GitHub, GitLab
		`()\bhf_[A-Za-z0-9]{20,}\b`,                                                           // Hugging Face
		`()\b(?:sk|pk|rk)[-_](?:live_|test_|proj-|ant-)?[A-Za-z0-9_-]{20,}`,                   // OpenAI, Anthropic, Stripe
		`()\bxox[abeoprs]-[A-Za-z0-9-]{10,}`,                                                  // Slack
		`()\bAIza[\w-]{35}`,                                                                   // Google
		`()\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*`,                                                 // JSON web token
		`()-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`, // PEM
		`(?i)(\b(?:bearer|basic) )[A-Za-z0-9._~+/=-]{12,}`,                                    // an HTTP header
	} {
		out = append(out, regexp.MustCompile(p))
	}
	return out
})

// assigned is NAME=value and --name=value, option is --name value.
var (
	assigned = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`([A-Za-z_][\w.-]*)=("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'\\,;]+)`)
	})
	option = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`((?:^|\s)--?[A-Za-z][\w.-]*[ \t]+)([^\s"'\\-][^\s"'\\]*)`)
	})
)

// Redact takes every secret out of a text that leaves the machine: those that
// their form gives away, and those behind a name that speaks of one.
func Redact(text string) string {
	for _, re := range values() {
		text = re.ReplaceAllString(text, "${1}"+Redacted+"${2}")
	}
	replace := func(re *regexp.Regexp, sep string) {
		text = re.ReplaceAllStringFunc(text, func(m string) string {
			if g := re.FindStringSubmatch(m); Secret(g[1]) {
				return g[1] + sep + Redacted
			}
			return m
		})
	}
	replace(assigned(), "=")
	replace(option(), "")
	return text
}

// RedactWords does the same for the words of a command, where a name and its
// value may be two words.
func RedactWords(argv []string) []string {
	out := slices.Clone(argv)
	pass := false // the words of sshpass: -p is the password
	for i, w := range out {
		switch {
		case i > 0 && strings.HasPrefix(argv[i-1], "-") && !strings.Contains(argv[i-1], "=") && Secret(argv[i-1]) && !strings.HasPrefix(w, "-"),
			i > 0 && pass && argv[i-1] == "-p":
			out[i] = Redacted
			continue
		case pass && strings.HasPrefix(w, "-p") && len(w) > 2:
			out[i] = "-p" + Redacted
			continue
		}
		out[i] = Redact(w)
		pass = pass && strings.HasPrefix(w, "-") || w == "sshpass" || strings.HasSuffix(w, "/sshpass")
	}
	return out
}
