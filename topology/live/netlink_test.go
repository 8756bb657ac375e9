package live

import (
	"encoding/binary"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// attr is one netlink attribute, padded.
func attr(kind uint16, value ...byte) []byte {
	b := make([]byte, 4, 4+len(value)+3)
	binary.NativeEndian.PutUint16(b, uint16(4+len(value)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func nest(kind uint16, parts ...[]byte) []byte {
	var v []byte
	for _, p := range parts {
		v = append(v, p...)
	}
	return attr(kind|1<<15, v...) // NLA_F_NESTED
}

func u32b(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
func u16b(v uint16) []byte { return binary.NativeEndian.AppendUint16(nil, v) }

func app(kind uint16, sel, prio byte, proto uint16) []byte {
	return attr(kind, append([]byte{sel, prio}, u16b(proto)...)...)
}

func repeat(v byte, n int) []byte { return []byte(strings.Repeat(string(rune(v)), n)) }

// ieeeReply is what mlx5 answers in DSCP trust with PFC on priority 3.
func ieeeReply() []byte {
	ets := append([]byte{1, 8, 0}, 0, 0, 0, 50, 0, 0, 50, 0) // willing, cap, cbs, tx
	ets = append(ets, repeat(0, 8)...)                       // rx
	ets = append(ets, 255, 255, 255, 2, 255, 255, 0, 7)      // tsa
	ets = append(ets, 1, 0, 2, 3, 4, 5, 6, 7)                // prio_tc
	ets = append(ets, repeat(0, 24)...)
	pfc := append([]byte{8, 1 << 3, 0, 0}, repeat(0, 4+128)...)
	buffer := []byte{0, 0, 0, 1, 0, 0, 0, 0}
	for _, size := range []uint32{130944, 130944, 0, 0, 0, 0, 0, 0, 262016} {
		buffer = append(buffer, u32b(size)...)
	}
	body := []byte{0, dcbCmdIEEEGet, 0, 0}
	body = append(body, attr(dcbAttrIfname, []byte("ens1f0np0\x00")...)...)
	body = append(body, nest(dcbAttrIEEE,
		attr(ieeeETS, ets...), attr(ieeePFC, pfc...), attr(ieeeBuffer, buffer...),
		nest(ieeeAppTable, app(ieeeApp, selDSCP, 2, 26), app(ieeeApp, selDSCP, 3, 26), app(ieeeApp, selDSCP, 6, 48), app(ieeeApp, 3, 3, 4791), app(dcbApp, selPCP, 3, 3)),
	)...)
	return append(body, attr(dcbAttrDCBX, dcbxHost|dcbxIEEE)...)
}

func TestDCBText(t *testing.T) {
	for _, tc := range []struct {
		name    string
		payload []byte
		ofed    string
		want    string
	}{
		{name: "IEEE, DSCP trust, PFC on 3, the highest priority of a doubled DSCP", payload: ieeeReply(), want: `trust dscp
pfc 3
dscp 26 3
dscp 48 6
prio-tc 1 0 2 3 4 5 6 7
tc-bw 0 0 0 50 0 0 50 0
tc-tsa vendor vendor vendor ets vendor vendor strict tsa-7
willing on
dcbx host ieee
prio-buffer 0 0 0 1 0 0 0 0
buffer-size 130944 130944 0 0 0 0 0 0
`},
		{name: "an empty APP table is PCP trust, no PFC is said as such", payload: append([]byte{0, dcbCmdIEEEGet, 0, 0}, nest(dcbAttrIEEE, attr(ieeePFC, 8, 0, 0), nest(ieeeAppTable))...), want: "trust pcp\npfc\n"},
		{name: "OFED's own file knows the trust", payload: append([]byte{0, dcbCmdIEEEGet, 0, 0}, nest(dcbAttrIEEE, nest(ieeeAppTable))...), ofed: "dscp", want: "trust dscp\n"},
		{name: "the kernel's trust table comes first", payload: append([]byte{0, dcbCmdIEEEGet, 0, 0}, nest(dcbAttrIEEE, nest(ieeeAppTrust, attr(dcbApp, selPCP), attr(ieeeApp, selDSCP)), nest(ieeeAppTable, app(ieeeApp, selDSCP, 3, 26)))...), want: "trust pcp\ndscp 26 3\n"},
		{name: "CEE: one attribute a priority", payload: append([]byte{0, dcbCmdCEEGet, 0, 0}, nest(dcbAttrCEE, nest(ceePFC, attr(4, 1), attr(5, 0), attr(8, 1)))...), want: "pfc 3 7\n"},
		{name: "attributes cut short say nothing", payload: append([]byte{0, dcbCmdIEEEGet, 0, 0}, nest(dcbAttrIEEE, attr(ieeeETS, 1, 2), attr(ieeePFC, 8), attr(ieeeBuffer, 1))...), want: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var st dcbState
			decodeDCB(tc.payload, &st)
			if diff := cmp.Diff(tc.want, dcbText(st, tc.ofed)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// The request as the kernel's own headers lay it out: a hand-written message.
func TestEncodeDCB(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the message below is little endian")
	}
	want := []byte{
		32, 0, 0, 0, 78, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, // nlmsghdr: length, RTM_GETDCB, NLM_F_REQUEST, seq, pid
		0, 21, 0, 0, // dcbmsg: AF_UNSPEC, IEEE_GET
		9, 0, 1, 0, 'e', 't', 'h', '0', 0, 0, 0, 0, // DCB_ATTR_IFNAME "eth0\0", padded
	}
	if diff := cmp.Diff(want, encodeDCB(dcbCmdIEEEGet, "eth0", 7)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func message(kind uint16, seq uint32, data []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(16+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, seq)
	return append(append(b, 0, 0, 0, 0), data...)
}

func TestDCBReplies(t *testing.T) {
	var st dcbState
	errno := int32(-int32(syscall.EOPNOTSUPP))
	if err := dcbReplies(message(syscall.NLMSG_ERROR, 1, u32b(uint32(errno))), 1, &st); err != syscall.EOPNOTSUPP {
		t.Errorf("error reply: %v, want EOPNOTSUPP", err)
	}
	if err := dcbReplies(message(79, 2, ieeeReply()), 1, &st); err != nil || st.pfc != nil {
		t.Errorf("a reply to another request was read: %v %v", err, st.pfc)
	}
	if err := dcbReplies(message(79, 1, ieeeReply()), 1, &st); err != nil || st.pfc == nil {
		t.Errorf("own reply: %v, %v", err, st.pfc)
	}
}

func TestRouteTables(t *testing.T) {
	names := map[int]string{2: "ens1", 3: "ens2"}
	msg := func(kind uint16, data []byte) syscall.NetlinkMessage {
		return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}
	}
	rt := func(family, bits, table, kind byte, at ...[]byte) []byte {
		b := []byte{family, bits, 0, 0, table, 0, 0, kind, 0, 0, 0, 0}
		for _, a := range at {
			b = append(b, a...)
		}
		return b
	}
	hop := func(dev uint32, via ...byte) []byte {
		inner := attr(syscall.RTA_GATEWAY, via...)
		b := u16b(uint16(8 + len(inner)))
		b = append(b, 0, 0)
		b = append(b, u32b(dev)...)
		return append(b, inner...)
	}
	got := routeLines([]syscall.NetlinkMessage{
		msg(syscall.RTM_NEWROUTE, rt(syscall.AF_INET, 0, 254, 1, attr(syscall.RTA_OIF, u32b(2)...), attr(syscall.RTA_GATEWAY, 192, 0, 2, 1), attr(syscall.RTA_PRIORITY, u32b(100)...))),
		msg(syscall.RTM_NEWROUTE, rt(syscall.AF_INET, 16, 252, 1, attr(syscall.RTA_DST, 10, 1, 0, 0), attr(syscall.RTA_TABLE, u32b(1001)...), attr(syscall.RTA_OIF, u32b(3)...), attr(syscall.RTA_PREFSRC, 10, 1, 0, 5))),
		msg(syscall.RTM_NEWROUTE, rt(syscall.AF_INET, 32, 255, 2, attr(syscall.RTA_DST, 10, 1, 0, 5))), // the local table
		msg(syscall.RTM_NEWROUTE, rt(syscall.AF_INET, 8, 254, 1, attr(syscall.RTA_DST, 10, 0, 0, 0), attr(syscall.RTA_MULTIPATH, append(hop(2, 10, 9, 0, 1), hop(3, 10, 9, 1, 1)...)...))),
		msg(syscall.RTM_NEWROUTE, []byte{1, 2}),
	}, names)
	want := "0.0.0.0/0 dev ens1 via 192.0.2.1 table 254 metric 100\n10.1.0.0/16 dev ens2 table 1001 src 10.1.0.5\n" +
		"10.0.0.0/8 dev ens1 via 10.9.0.1 table 254\n10.0.0.0/8 dev ens2 via 10.9.1.1 table 254\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes: -want +got\n%s", diff)
	}
	rules := ruleLines([]syscall.NetlinkMessage{
		msg(rtmNewRule, []byte{2, 0, 0, 0, 255, 0, 0, 1, 0, 0, 0, 0}),
		msg(rtmNewRule, append([]byte{2, 0, 32, 0, 101, 0, 0, 1, 0, 0, 0, 0}, append(attr(fraPriority, u32b(32765)...), attr(fraSrc, 10, 1, 0, 5)...)...)),
	})
	if want := "priority 32765 from 10.1.0.5/32 table 101\n"; rules != want {
		t.Errorf("rules = %q, want %q", rules, want)
	}
	addrs := addrLines([]syscall.NetlinkMessage{
		msg(syscall.RTM_NEWADDR, append(append([]byte{2, 24, 0, 0}, u32b(2)...), attr(syscall.IFA_LOCAL, 192, 0, 2, 2)...)),
		msg(syscall.RTM_NEWADDR, append(append([]byte{2, 24, 0, 0}, u32b(9)...), attr(syscall.IFA_LOCAL, 192, 0, 2, 3)...)), // an interface nobody named
	}, names)
	if want := "ens1 192.0.2.2/24\n"; addrs != want {
		t.Errorf("addresses = %q, want %q", addrs, want)
	}
}

func FuzzDecodeDCB(f *testing.F) {
	f.Add(ieeeReply())
	f.Add([]byte{0, 0, 0, 0, 4, 0, 13, 128})
	f.Fuzz(func(t *testing.T, b []byte) {
		var st dcbState
		decodeDCB(b, &st)
		dcbText(st, "")
		_ = dcbReplies(b, 1, &st)
		nextHops(b, nil)
	})
}
