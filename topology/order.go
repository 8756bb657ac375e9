package topology

import (
	"cmp"
	"strings"
)

// CompareNatural orders names as people do: mlx5_2 before mlx5_10.
func CompareNatural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		if isDigit(x[0]) && isDigit(y[0]) {
			nx, ny := digits(x), digits(y)
			tx, ty := strings.TrimLeft(x[:nx], "0"), strings.TrimLeft(y[:ny], "0")
			if c := cmp.Or(cmp.Compare(len(tx), len(ty)), strings.Compare(tx, ty)); c != 0 {
				return c
			}
			x, y = x[nx:], y[ny:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func digits(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

// ComparePCI orders PCI addresses by domain, bus, device and function; domains
// of different lengths by value.
func ComparePCI(a, b string) int {
	da, ra, _ := strings.Cut(a, ":")
	db, rb, _ := strings.Cut(b, ":")
	ta, tb := strings.TrimLeft(da, "0"), strings.TrimLeft(db, "0")
	return cmp.Or(cmp.Compare(len(ta), len(tb)), strings.Compare(ta, tb), strings.Compare(ra, rb), strings.Compare(a, b))
}
