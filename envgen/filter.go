package envgen

import (
	"strconv"
	"strings"
)

// filter is NCCL's list of names (NCCL_IB_HCA, NCCL_SOCKET_IFNAME): '^' before
// everything excludes, '=' after it makes all names exact, otherwise they are
// prefixes. src/misc/utils.cc parseStringList and matchIfList.
type filter struct {
	exclude bool
	exact   bool
	items   []filterItem
}

type filterItem struct {
	name string
	port int // -1 any
}

func parseFilter(value string) filter {
	var f filter
	value, f.exclude = strings.CutPrefix(value, "^")
	value, f.exact = strings.CutPrefix(value, "=")
	for item := range strings.SplitSeq(value, ",") {
		if item == "" {
			continue
		}
		name, rest, hasPort := strings.Cut(item, ":")
		it := filterItem{name: name, port: -1}
		if hasPort {
			rest, _, _ = strings.Cut(rest, ":") // rail and plane follow since 2.30
			if n, err := strconv.Atoi(rest); err == nil {
				it.port = n
			}
		}
		f.items = append(f.items, it)
	}
	return f
}

func (f filter) matchesItem(it filterItem, name string, port int) bool {
	if it.port >= 0 && port >= 0 && it.port != port {
		return false
	}
	if f.exact {
		return it.name == name
	}
	return strings.HasPrefix(name, it.name)
}

// takes says whether the filter lets a name (and port; -1 none) through.
func (f filter) takes(name string, port int) bool {
	if len(f.items) == 0 {
		return !f.exclude
	}
	for _, it := range f.items {
		if f.matchesItem(it, name, port) {
			return !f.exclude
		}
	}
	return f.exclude
}

// ncclInt is how NCCL reads a number: strtoll with base 0, what follows it
// ignored. exact is false when the text is not the number alone.
func ncclInt(text string) (n int64, exact bool) {
	s := strings.TrimLeft(text, " \t")
	neg := false
	if t, ok := strings.CutPrefix(s, "-"); ok {
		neg, s = true, t
	} else {
		s = strings.TrimPrefix(s, "+")
	}
	base, digits := 10, "0123456789"
	switch {
	case len(s) > 2 && (strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X")) && strings.ContainsRune("0123456789abcdefABCDEF", rune(s[2])):
		base, digits, s = 16, "0123456789abcdefABCDEF", s[2:]
	case len(s) > 1 && s[0] == '0':
		base, digits = 8, "01234567"
	}
	end := 0
	for end < len(s) && strings.IndexByte(digits, s[end]) >= 0 {
		end++
	}
	if end == 0 {
		return 0, false
	}
	v, err := strconv.ParseInt(s[:end], base, 64)
	if err != nil { // out of range: NCCL says so and takes its default
		return 0, false
	}
	if neg {
		v = -v
	}
	return v, end == len(s)
}
