package live

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// maxRoutes bounds the routing table: a node that routes for others may know
// very many, of which the first answer every question about a job's rails.
const maxRoutes = 4096

// dump asks the kernel for one of its tables.
func dump(kind int) ([]syscall.NetlinkMessage, error) {
	raw, err := syscall.NetlinkRIB(kind, syscall.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	return syscall.ParseNetlinkMessage(raw)
}

// attrs reads the attributes that follow a header of n bytes. Attributes that
// do not fit are left out: the kernel wrote them, so none should.
func attrs(b []byte, n int) map[uint16][]byte {
	out := map[uint16][]byte{}
	eachAttr(b, n, func(kind uint16, value []byte) { out[kind] = value })
	return out
}

// eachAttr calls f for every attribute after the first n bytes of b, without
// the nesting and byte order flags of its type.
func eachAttr(b []byte, n int, f func(kind uint16, value []byte)) {
	if n > len(b) {
		return
	}
	for b = b[n:]; len(b) >= 4; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&0x3fff, b[4:size])
		next := (size + 3) &^ 3
		if next > len(b) {
			return
		}
		b = b[next:]
	}
}

func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

func u32(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(b))
}

func addrOf(b []byte) (netip.Addr, bool) { return netip.AddrFromSlice(b) }

// linkNames maps interface indexes to names.
func linkNames() map[int]string {
	out := map[int]string{}
	msgs, err := dump(syscall.RTM_GETLINK)
	if err != nil {
		return out
	}
	for _, msg := range msgs {
		// struct ifinfomsg: 16 bytes, the index at 4.
		if msg.Header.Type == syscall.RTM_NEWLINK && len(msg.Data) >= syscall.SizeofIfInfomsg {
			if name := cString(attrs(msg.Data, syscall.SizeofIfInfomsg)[syscall.IFLA_IFNAME]); name != "" {
				out[u32(msg.Data[4:])] = name
			}
		}
	}
	return out
}

func (m *machine) addrs() ([]byte, error) {
	msgs, err := dump(syscall.RTM_GETADDR)
	if err != nil {
		return nil, err
	}
	return []byte(addrLines(msgs, linkNames())), nil
}

// addrLines reads struct ifaddrmsg: family, length, flags, scope, index.
func addrLines(msgs []syscall.NetlinkMessage, names map[int]string) string {
	var b strings.Builder
	for _, msg := range msgs {
		if msg.Header.Type != syscall.RTM_NEWADDR || len(msg.Data) < syscall.SizeofIfAddrmsg {
			continue
		}
		at := attrs(msg.Data, syscall.SizeofIfAddrmsg)
		raw, ok := at[syscall.IFA_LOCAL] // the own end of a point-to-point link
		if !ok {
			raw = at[syscall.IFA_ADDRESS]
		}
		name := names[u32(msg.Data[4:])]
		if addr, ok := addrOf(raw); ok && name != "" {
			fmt.Fprintf(&b, "%s %s/%d\n", name, addr, msg.Data[1])
		}
	}
	return b.String()
}

func (m *machine) routes() ([]byte, error) {
	msgs, err := dump(syscall.RTM_GETROUTE)
	if err != nil {
		return nil, err
	}
	return []byte(routeLines(msgs, linkNames())), nil
}

// routeLines reads struct rtmsg (family, dst length, src length, tos, table,
// protocol, scope, type, flags) of unicast routes outside the local table.
func routeLines(msgs []syscall.NetlinkMessage, names map[int]string) string {
	const localTable, unicast, cloned = 255, 1, 0x200
	var lines []string
	for _, msg := range msgs {
		if msg.Header.Type != syscall.RTM_NEWROUTE || len(msg.Data) < syscall.SizeofRtMsg || len(lines) >= maxRoutes {
			continue
		}
		family, bits, table := msg.Data[0], int(msg.Data[1]), int(msg.Data[4])
		at := attrs(msg.Data, syscall.SizeofRtMsg)
		if t, ok := at[syscall.RTA_TABLE]; ok {
			table = u32(t)
		}
		if table == localTable || msg.Data[7] != unicast || u32(msg.Data[8:])&cloned != 0 {
			continue
		}
		dst := netip.IPv4Unspecified()
		if family == syscall.AF_INET6 {
			dst = netip.IPv6Unspecified()
		} else if family != syscall.AF_INET {
			continue
		}
		if raw, ok := at[syscall.RTA_DST]; ok {
			if dst, ok = addrOf(raw); !ok {
				continue
			}
		}
		tail := fmt.Sprintf(" table %d", table)
		if p, ok := at[syscall.RTA_PRIORITY]; ok {
			tail += fmt.Sprintf(" metric %d", u32(p))
		}
		if src, ok := addrOf(at[syscall.RTA_PREFSRC]); ok {
			tail += " src " + src.String()
		}
		head := fmt.Sprintf("%s/%d", dst, bits)
		if multi, ok := at[syscall.RTA_MULTIPATH]; ok {
			for _, hop := range nextHops(multi, names) {
				lines = append(lines, head+hop+tail)
			}
			continue
		}
		lines = append(lines, head+hopText(names[u32(at[syscall.RTA_OIF])], at)+tail)
	}
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

func hopText(dev string, at map[uint16][]byte) string {
	s := ""
	if dev != "" {
		s += " dev " + dev
	}
	if via, ok := addrOf(at[syscall.RTA_GATEWAY]); ok {
		s += " via " + via.String()
	}
	return s
}

// nextHops reads a chain of struct rtnexthop: length, flags, hops, index, attributes.
func nextHops(b []byte, names map[int]string) []string {
	var out []string
	for len(b) >= 8 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 8 || size > len(b) {
			break
		}
		out = append(out, hopText(names[u32(b[4:])], attrs(b[:size], 8)))
		next := (size + 3) &^ 3
		if next > len(b) {
			break
		}
		b = b[next:]
	}
	return out
}

// Attributes of policy rules (linux/fib_rules.h).
const (
	rtmGetRule, rtmNewRule = 34, 32
	sizeofFibRuleHdr       = 12
	fraDst, fraSrc         = 1, 2
	fraIifname, fraOifname = 3, 17
	fraPriority, fraTable  = 6, 15
)

func (m *machine) rules() ([]byte, error) {
	msgs, err := dump(rtmGetRule)
	if err != nil {
		return nil, err
	}
	return []byte(ruleLines(msgs)), nil
}

// ruleLines reads struct fib_rule_hdr (family, dst length, src length, tos,
// table, …). The three rules that every machine has (local, main, default) say
// nothing and are left out.
func ruleLines(msgs []syscall.NetlinkMessage) string {
	var b strings.Builder
	for _, msg := range msgs {
		if msg.Header.Type != rtmNewRule || len(msg.Data) < sizeofFibRuleHdr {
			continue
		}
		at := attrs(msg.Data, sizeofFibRuleHdr)
		table := int(msg.Data[4])
		if t, ok := at[fraTable]; ok {
			table = u32(t)
		}
		sel := ""
		if src, ok := addrOf(at[fraSrc]); ok {
			sel += fmt.Sprintf(" from %s/%d", src, msg.Data[2])
		}
		if dst, ok := addrOf(at[fraDst]); ok {
			sel += fmt.Sprintf(" to %s/%d", dst, msg.Data[1])
		}
		if s := cString(at[fraIifname]); s != "" {
			sel += " iif " + s
		}
		if s := cString(at[fraOifname]); s != "" {
			sel += " oif " + s
		}
		prio := u32(at[fraPriority])
		if sel == "" && (prio == 0 || prio == 32766 || prio == 32767) {
			continue
		}
		fmt.Fprintf(&b, "priority %d%s table %d\n", prio, sel, table)
	}
	return b.String()
}
