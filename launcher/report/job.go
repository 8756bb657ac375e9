package report

import "fabrun/launcher/watch"

// JobSentence is the last line of a run: what really carried the data. "" means
// that there is nothing to say: no log, one host.
func JobSentence(v watch.Verdict, c watch.CounterVerdict, hosts int) string {
	logs := v.Fallback != nil && *v.Fallback
	counted := c.Fallback != nil && *c.Fallback
	switch {
	case logs:
		return v.Sentence
	case counted && c.Intentional:
		return "TCP, as was asked for: " + c.Text
	case counted:
		return "FALLBACK to TCP: " + c.Text
	case len(v.FatalErrors) > 0, v.Library != "" && v.Fallback != nil:
		return v.Sentence
	case c.Fallback != nil && hosts > 1:
		return "No fallback: " + c.Text
	case hosts > 1 && c.Text != "":
		return "Unknown what carried the data: " + c.Text
	case v.Library != "":
		return v.Sentence
	}
	return ""
}
