package hosts

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Bounds on what one expression may stand for: an allocation of a million hosts
// exists nowhere, and a slip of the finger must not fill the memory.
const (
	maxNames     = 1 << 20
	maxNameBytes = 255 // longest DNS name
	maxAllBytes  = 64 << 20
	maxDigits    = 18
	maxSlots     = 1 << 20
)

// span is one range of a bracket: lo to hi, both included, each written with at
// least width digits.
type span struct {
	lo, hi uint64
	width  int
}

// segment is literal text and the bracket behind it; spans is nil at the end.
type segment struct {
	text  string
	spans []span
}

// word is one item of a list: item text and its place in the whole.
type word struct {
	text string
	pos  int
}

// Expand returns the names that a Slurm node list stands for, in order and with
// duplicates kept. The grammar is Slurm's (src/common/hostlist.c): items
// separated by commas or blanks, several brackets per item of which the last
// varies fastest, a number is as wide as the lower bound of its range is
// written, and text may follow a bracket (Slurm from 23.11 on). Steps,
// descending and nested ranges and the base-36 boxes of multi-dimensional
// systems are refused, with the place, instead of expanded to garbage.
func Expand(expr string) ([]string, error) {
	words, err := splitList(expr)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, w := range words {
		segs, err := parseItem(expr, w)
		if err != nil {
			return nil, err
		}
		if all, err = appendItem(all, expr, w, segs); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("host list %s: %w", quote(expr), ErrNoHosts)
	}
	return all, nil
}

// ParseList reads what --hosts takes: a Slurm node list in which an item may
// end in :SLOTS, and which may hold IPv4 addresses (10.1.4.[1-12]) and IPv6
// addresses (fd00::1, or [fd00::1]:SLOTS). A host named more than once gets
// one slot per mention where no number stands, as with mpirun --host.
// user@host is refused: the account belongs into the ssh configuration, where
// the launcher finds it too.
func ParseList(expr string) (Allocation, error) {
	words, err := splitList(expr)
	if err != nil {
		return Allocation{}, err
	}
	var all []Host
	distinct := len(words) == 1
	for _, w := range words {
		hosts, unique, err := parseListItem(expr, w)
		if err != nil {
			return Allocation{}, err
		}
		if len(all)+len(hosts) > maxNames {
			return Allocation{}, exprError(expr, w.pos, "more than %d hosts", maxNames)
		}
		distinct = distinct && unique
		if all == nil {
			all = hosts
		} else {
			all = append(all, hosts...)
		}
	}
	if len(all) == 0 {
		return Allocation{}, fmt.Errorf("host list %s: %w", quote(expr), ErrNoHosts)
	}
	if !distinct {
		all, _ = merge(all)
	}
	return Allocation{Source: "--hosts", Hosts: all}, nil
}

// parseListItem returns the hosts of one item, and whether they are surely all
// different (which spares the caller of a long list a look at each).
func parseListItem(expr string, w word) (hosts []Host, unique bool, err error) {
	if i := strings.IndexByte(w.text, '@'); i >= 0 {
		return nil, false, exprError(expr, w.pos+i, "user@host is not taken here: name the user in the ssh configuration")
	}
	text, slotText, hasSlots, addr, err := cutSlots(expr, w)
	if err != nil {
		return nil, false, err
	}
	var slots *int
	if hasSlots {
		if text == "" {
			return nil, false, exprError(expr, w.pos, "slots without a host")
		}
		n, err := parseSlots(slotText)
		if err != nil {
			return nil, false, exprError(expr, w.pos+len(w.text)-len(slotText), "slots of %s: %w", quote(text), err)
		}
		slots = &n
	}
	if addr.IsValid() {
		return []Host{{Name: addr.String(), Address: addr.String(), Slots: slots}}, true, nil
	}
	sub := word{text: text, pos: w.pos}
	segs, err := parseItem(expr, sub)
	if err != nil {
		return nil, false, err
	}
	names, err := appendItem(nil, expr, sub, segs)
	if err != nil {
		return nil, false, err
	}
	numeric := strings.Trim(text, "0123456789.[],- \t") == "" && strings.Count(text, ".") == 3
	hosts = make([]Host, len(names))
	for i, name := range names {
		hosts[i] = Host{Name: name, Slots: slots}
		if numeric {
			a, err := netip.ParseAddr(name)
			if err != nil {
				return nil, false, exprError(expr, w.pos, "%s is not an IPv4 address", quote(name))
			}
			hosts[i].Address = a.String()
		}
	}
	return hosts, allDifferent(segs), nil
}

// cutSlots separates an item from the :SLOTS behind it; an IPv6 address, which
// has colons of its own, comes back as addr.
func cutSlots(expr string, w word) (text, slots string, has bool, addr netip.Addr, err error) {
	if strings.HasPrefix(w.text, "[") {
		end := strings.IndexByte(w.text, ']')
		if inner := w.text[1:end]; strings.Contains(inner, ":") {
			addr, err := netip.ParseAddr(inner)
			if err != nil {
				return "", "", false, addr, exprError(expr, w.pos+1, "%s is not an IPv6 address", quote(inner))
			}
			rest := w.text[end+1:]
			if rest == "" {
				return w.text, "", false, addr, nil
			}
			if rest[0] != ':' {
				return "", "", false, addr, exprError(expr, w.pos+end+1, "only :SLOTS can follow an address in brackets")
			}
			return w.text[:end+1], rest[1:], true, addr, nil
		}
	}
	switch first := strings.IndexByte(w.text, ':'); {
	case first < 0:
		return w.text, "", false, addr, nil
	case first != strings.LastIndexByte(w.text, ':'):
		addr, err := netip.ParseAddr(w.text)
		if err != nil {
			return "", "", false, addr, exprError(expr, w.pos+first, "more than one ':': an IPv6 address with slots is written [ADDRESS]:SLOTS")
		}
		return w.text, "", false, addr, nil
	case first < strings.LastIndexByte(w.text, ']'):
		return "", "", false, addr, exprError(expr, w.pos+first, "':' inside brackets: slots stand behind them, and ranges have no steps")
	default:
		return w.text[:first], w.text[first+1:], true, addr, nil
	}
}

func parseSlots(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 || n > maxSlots {
		return 0, fmt.Errorf("%s is not a number of slots (1 to %d)", quote(s), maxSlots)
	}
	return int(n), nil
}

// splitList cuts a list at commas and blanks outside brackets and skips empty
// items. It refuses brackets that do not pair.
func splitList(expr string) ([]word, error) {
	var words []word
	start, open := -1, -1
	flush := func(end int) {
		if start >= 0 {
			words = append(words, word{expr[start:end], start})
			start = -1
		}
	}
	for i := 0; i < len(expr); i++ {
		switch c := expr[i]; {
		case c == '[':
			if open >= 0 {
				return nil, exprError(expr, i, "brackets cannot be nested")
			}
			open = i
			if start < 0 {
				start = i
			}
		case c == ']':
			if open < 0 {
				return nil, exprError(expr, i, "']' without '['")
			}
			open = -1
		case open < 0 && (c == ',' || isBlank(c)):
			flush(i)
		case start < 0:
			start = i
		}
	}
	if open >= 0 {
		return nil, exprError(expr, open, "'[' is never closed")
	}
	flush(len(expr))
	return words, nil
}

// parseItem reads one item, whose brackets are known to pair.
func parseItem(expr string, w word) ([]segment, error) {
	var segs []segment
	text, base := w.text, w.pos
	for {
		i := strings.IndexByte(text, '[')
		lit := text
		if i >= 0 {
			lit = text[:i]
		}
		if err := checkText(expr, base, lit, len(segs) == 0); err != nil {
			return nil, err
		}
		if i < 0 {
			return append(segs, segment{text: lit}), nil
		}
		end := i + strings.IndexByte(text[i:], ']')
		spans, err := parseSpans(expr, base+i+1, text[i+1:end])
		if err != nil {
			return nil, err
		}
		segs = append(segs, segment{lit, spans})
		text, base = text[end+1:], base+end+1
	}
}

// checkText refuses what can be in no host name: names go into files and
// command lines of other programs.
func checkText(expr string, pos int, lit string, first bool) error {
	if first && strings.HasPrefix(lit, "-") {
		return exprError(expr, pos, "a host name cannot begin with '-'")
	}
	for i := 0; i < len(lit); i++ {
		if !isNameByte(lit[i]) {
			return exprError(expr, pos+i, "%q cannot be in a host name", rune(lit[i]))
		}
	}
	return nil
}

// parseSpans reads what is between brackets: numbers and ranges.
func parseSpans(expr string, pos int, inner string) ([]span, error) {
	var spans []span
	for {
		part, rest, more := strings.Cut(inner, ",")
		s, err := parseSpan(expr, pos, part)
		if err != nil {
			return nil, err
		}
		spans = append(spans, s)
		if !more {
			return spans, nil
		}
		pos += len(part) + 1
		inner = rest
	}
}

func parseSpan(expr string, pos int, part string) (span, error) {
	trimmed := strings.TrimLeft(part, " \t")
	pos += len(part) - len(trimmed)
	trimmed = strings.TrimRight(trimmed, " \t")
	loText, hiText, isRange := strings.Cut(trimmed, "-")
	switch {
	case trimmed == "":
		return span{}, exprError(expr, pos, "empty range in brackets")
	case strings.ContainsAny(trimmed, ":/"):
		return span{}, exprError(expr, pos, "%s: ranges have no steps in this grammar", quote(trimmed))
	case isBox(trimmed):
		return span{}, exprError(expr, pos, "%s: boxes of multi-dimensional systems (base 36) are not supported", quote(trimmed))
	}
	lo, err := parseNumber(expr, pos, loText)
	if err != nil {
		return span{}, err
	}
	s := span{lo: lo, hi: lo, width: len(loText)}
	if isRange {
		if s.hi, err = parseNumber(expr, pos+len(loText)+1, hiText); err != nil {
			return span{}, err
		}
	}
	switch {
	case s.hi < s.lo:
		return span{}, exprError(expr, pos, "%s: a range cannot descend", quote(trimmed))
	case s.hi-s.lo >= maxNames:
		return span{}, exprError(expr, pos, "%s: more than %d hosts", quote(trimmed), maxNames)
	}
	return s, nil
}

// isBox recognises 000x733, a range over several dimensions.
func isBox(s string) bool {
	a, b, ok := strings.Cut(s, "x")
	base36 := func(t string) bool {
		return t != "" && strings.Trim(t, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	}
	return ok && base36(a) && base36(b)
}

func parseNumber(expr string, pos int, s string) (uint64, error) {
	if s == "" {
		return 0, exprError(expr, pos, "a number is missing in the range")
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, exprError(expr, pos+i, "%q in a range: only decimal numbers can be there", rune(s[i]))
		}
	}
	if len(s) > maxDigits {
		return 0, exprError(expr, pos, "%s has more than %d digits", quote(s), maxDigits)
	}
	return strconv.ParseUint(s, 10, 64)
}

// appendItem writes the names of one item. They share one backing string: two
// allocations for a hundred thousand names.
func appendItem(all []string, expr string, w word, segs []segment) ([]string, error) {
	count, bytes := uint64(1), 0
	for _, s := range segs {
		bytes += len(s.text)
		if s.spans == nil {
			continue
		}
		n, widest := uint64(0), 0
		for _, sp := range s.spans {
			n += sp.hi - sp.lo + 1
			widest = max(widest, sp.width, digits(sp.hi))
		}
		bytes += widest
		// Neither factor exceeds 2^20·ranges here, so the product cannot wrap before the check.
		if n > maxNames || count*n > maxNames {
			return nil, exprError(expr, w.pos, "more than %d hosts", maxNames)
		}
		count *= n
	}
	switch {
	case bytes > maxNameBytes:
		return nil, exprError(expr, w.pos, "a name would have more than %d bytes", maxNameBytes)
	case uint64(len(all))+count > maxNames || count*uint64(bytes) > maxAllBytes:
		return nil, exprError(expr, w.pos, "more than %d hosts", maxNames)
	case len(segs) == 1:
		return append(all, segs[0].text), nil
	}
	// The buffer never grows again, so each name can be cut from it at once.
	var text strings.Builder
	text.Grow(int(count) * bytes)
	all = slices.Grow(all, int(count))
	// head holds the name up to the current segment, and is rewritten in place.
	var head [maxNameBytes + 1]byte
	var walk func(n int, rest []segment)
	walk = func(n int, rest []segment) {
		n += copy(head[n:], rest[0].text)
		if rest[0].spans == nil {
			start := text.Len()
			text.Write(head[:n])
			all = append(all, text.String()[start:])
			return
		}
		last := len(rest) == 2 && rest[1].text == ""
		for _, sp := range rest[0].spans {
			end := len(appendNumber(head[:n], sp.lo, sp.width))
			for v := sp.lo; ; v++ {
				if last {
					start := text.Len()
					text.Write(head[:end])
					all = append(all, text.String()[start:])
				} else {
					walk(end, rest[1:])
				}
				if v == sp.hi {
					break
				}
				end = increment(head[:], n, end)
			}
		}
	}
	walk(0, segs)
	return all, nil
}

// increment adds one to the decimal number at b[from:end], and returns its new
// end.
func increment(b []byte, from, end int) int {
	for i := end - 1; i >= from; i-- {
		if b[i] != '9' {
			b[i]++
			return end
		}
		b[i] = '0'
	}
	b[from] = '1'
	b[end] = '0'
	return end + 1
}

func appendNumber(b []byte, v uint64, width int) []byte {
	for d := digits(v); d < width; d++ {
		b = append(b, '0')
	}
	return strconv.AppendUint(b, v, 10)
}

func digits(v uint64) int {
	n := 1
	for ; v >= 10; v /= 10 {
		n++
	}
	return n
}

// allDifferent reports whether an item can hold no name twice: at most one
// bracket, whose numbers only rise.
func allDifferent(segs []segment) bool {
	if len(segs) > 2 {
		return false
	}
	spans := segs[0].spans
	for i := 1; i < len(spans); i++ {
		if spans[i].lo <= spans[i-1].hi {
			return false
		}
	}
	return true
}

// Compress writes names as a Slurm node list that expands to exactly the same
// names, in order and with duplicates. Only a number at the end of a name is
// folded: text behind a bracket is refused by Slurm before 23.11.
func Compress(names []string) string {
	var b strings.Builder
	for i := 0; i < len(names); {
		if i > 0 {
			b.WriteByte(',')
		}
		prefix, _, ok := cutNumber(names[i])
		end := i + 1
		if ok {
			for end < len(names) {
				p, _, ok := cutNumber(names[end])
				if !ok || p != prefix {
					break
				}
				end++
			}
		}
		if end == i+1 {
			b.WriteString(names[i])
		} else {
			b.WriteString(prefix)
			b.WriteByte('[')
			compressNumbers(&b, names[i:end], len(prefix))
			b.WriteByte(']')
		}
		i = end
	}
	return b.String()
}

func compressNumbers(b *strings.Builder, names []string, cut int) {
	for i := 0; i < len(names); {
		if i > 0 {
			b.WriteByte(',')
		}
		lo := names[i][cut:]
		v, _ := strconv.ParseUint(lo, 10, 64)
		end := i + 1
		var num [maxNameBytes]byte
		for ; end < len(names); end++ {
			if string(appendNumber(num[:0], v+1, len(lo))) != names[end][cut:] {
				break
			}
			v++
		}
		b.WriteString(lo)
		if end > i+1 {
			b.WriteByte('-')
			b.WriteString(names[end-1][cut:])
		}
		i = end
	}
}

// cutNumber separates the number at the end of a name; ok is false where there
// is none, or one that no range could hold.
func cutNumber(name string) (prefix, number string, ok bool) {
	i := len(name)
	for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	// A very long number is folded by its last digits only.
	i = max(i, len(name)-maxDigits)
	return name[:i], name[i:], i < len(name)
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

// validName reports whether a name can be handed to other programs: a host
// name or an address, and nothing that could be an option.
func validName(s string) bool {
	if s == "" || len(s) > maxNameBytes || s[0] == '-' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !isNameByte(s[i]) {
			_, err := netip.ParseAddr(s)
			return err == nil && !strings.ContainsAny(s, " \t\n\"'\\$`;|&")
		}
	}
	return true
}

// exprError names the place, counted in characters from 1.
func exprError(expr string, pos int, format string, args ...any) error {
	return fmt.Errorf("host list %s: character %d: %w", quote(expr), pos+1, fmt.Errorf(format, args...))
}

// quote makes text from outside printable and bounded.
func quote(s string) string {
	const most = 120
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}
