package discover

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"
)

// hostCmp compares Hosts, whose addresses have hidden fields.
var hostCmp = []cmp.Option{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}
