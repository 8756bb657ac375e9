package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The manual pages are made of the commands when they are packed (make dist), so
// that none is kept that could say something else. The program itself does not
// carry what makes them.
var manDir = flag.String("man", "", "write the manual pages into this `directory`")

// roff escapes text for man: a backslash, a dash that is to stay one, and a line
// that would be a request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

// roffText is text of paragraphs; indented lines stay as they are.
func roffText(b *strings.Builder, text string) {
	verbatim := false
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t"); line != "" && indented != verbatim {
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[indented])
			verbatim = indented
		}
		if line == "" {
			line = ".PP"
			if verbatim {
				line = ""
			}
			b.WriteString(line + "\n")
			continue
		}
		b.WriteString(roff(line) + "\n")
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
}

func roffFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := `\fB` + roff("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			name = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + name
		}
		if value != "" {
			name += ` \fI` + roff(value) + `\fR`
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(b, ".TP\n%s\n%s\n", name, roff(usage))
	})
}

// manPage is the page of one verb.
func manPage(c *cobra.Command, date time.Time) string {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	fmt.Fprintf(&b, ".TH %q 1 %q fabrun \"fabrun manual\"\n", strings.ToUpper(name), date.Format(time.DateOnly))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(name), roff(c.Short))
	for line := range strings.Lines(strings.TrimSpace(usageLines(c)) + "\n") {
		fmt.Fprintf(&b, ".B %s.br\n", roff(line))
	}
	b.WriteString(".SH DESCRIPTION\n")
	roffText(&b, c.Long)
	if c.HasAvailableSubCommands() {
		b.WriteString(".SH VERBS\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(sub.Name()), roff(sub.Short))
			}
		}
	}
	roffFlags(&b, "OPTIONS", c.NonInheritedFlags())
	roffFlags(&b, "OPTIONS OF EVERY VERB", c.InheritedFlags())
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n")
		for line := range strings.Lines(strings.Trim(c.Example, "\n") + "\n") {
			b.WriteString(roff(line))
		}
		b.WriteString(".fi\n")
	}
	b.WriteString(".SH SEE ALSO\n")
	var see []string
	if p := c.Parent(); p != nil {
		see = append(see, p.CommandPath())
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			see = append(see, sub.CommandPath())
		}
	}
	for i, s := range see {
		see[i] = `\fB` + roff(strings.ReplaceAll(s, " ", "-")) + `\fR(1)`
	}
	b.WriteString(strings.Join(see, ",\n") + "\n")
	return b.String()
}

// usageLines is how a verb is called.
func usageLines(c *cobra.Command) string {
	if c.HasParent() {
		return c.UseLine()
	}
	return "fabrun [flags] PROGRAM…\nfabrun VERB …"
}

// withPages are a verb and those below it, by the file of their page.
func withPages(c *cobra.Command, pages map[string]*cobra.Command) {
	pages[strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"] = c
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			withPages(sub, pages)
		}
	}
}

// TestManual writes the pages where -man says so, dated SOURCE_DATE_EPOCH, and
// lets man read them: each says what its verb and its flags are for.
func TestManual(t *testing.T) {
	dir, date := *manDir, time.Unix(0, 0).UTC()
	if dir == "" {
		dir = t.TempDir()
	}
	if s := os.Getenv("SOURCE_DATE_EPOCH"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatalf("SOURCE_DATE_EPOCH=%q is no number of seconds", s)
		}
		date = time.Unix(n, 0).UTC()
	}
	root := (&app{}).rootCmd()
	root.CompletionOptions.DisableDefaultCmd = true
	pages := map[string]*cobra.Command{}
	withPages(root, pages)
	if len(pages) <= len(verbs) {
		t.Errorf("%d pages for %d verbs and fabrun itself", len(pages), len(verbs))
	}
	man, noMan := exec.LookPath("man")
	for name, c := range pages {
		page := filepath.Join(dir, name)
		if err := os.WriteFile(page, []byte(manPage(c, date)), 0o644); err != nil {
			t.Fatal(err)
		}
		if noMan != nil {
			continue
		}
		cmd := exec.Command(man, "--warnings", "-l", page)
		cmd.Env = append(os.Environ(), "MANWIDTH=400", "LC_ALL=C.UTF-8", "PAGER=cat", "MAN_KEEP_FORMATTING=")
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || errs.Len() > 0 {
			t.Errorf("man -l %s: %v: %s", page, err, errs.String())
		}
		said := strings.Join(strings.Fields(string(out)), " ")
		want := []string{c.Short}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			want = append(want, "--"+f.Name, usage)
		})
		for _, line := range strings.Split(c.Example, "\n") {
			want = append(want, strings.TrimSpace(line))
		}
		for _, w := range want {
			if !strings.Contains(said, strings.Join(strings.Fields(w), " ")) {
				t.Errorf("man -l %s does not say %q", page, w)
			}
		}
	}
}
