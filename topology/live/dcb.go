package live

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// IEEE DCB over rtnetlink (linux/dcbnl.h; the kernel's net/dcb/dcbnl.c).
// Reading needs no privilege.
const (
	rtmGetDCB = 78

	dcbCmdIEEEGet = 21
	dcbCmdGetDCBX = 22
	dcbCmdCEEGet  = 26

	dcbAttrIfname = 1
	dcbAttrIEEE   = 13
	dcbAttrDCBX   = 14
	dcbAttrCEE    = 16

	ieeeETS       = 1
	ieeePFC       = 2
	ieeeAppTable  = 3
	ieeeBuffer    = 10
	ieeeAppTrust  = 11
	ieeeApp       = 1
	dcbApp        = 2
	ceePFC        = 6
	selDSCP       = 5
	selPCP        = 255
	dcbxHost      = 0x01
	dcbxLLD       = 0x02
	dcbxCEE       = 0x04
	dcbxIEEE      = 0x08
	dcbxStatic    = 0x10
	sizeofETS     = 59 // willing, ets_cap, cbs, seven arrays of 8
	sizeofPFCHead = 3  // pfc_cap, pfc_en, mbc; delay and counts follow
	sizeofBuffer  = 44 // prio2buffer[8], buffer_size[8] of 4 bytes, total
)

var dcbxNames = []struct {
	flag byte
	name string
}{{dcbxHost, "host"}, {dcbxLLD, "lld-managed"}, {dcbxCEE, "cee"}, {dcbxIEEE, "ieee"}, {dcbxStatic, "static"}}

var tsaNames = map[byte]string{0: "strict", 1: "cbs", 2: "ets", 255: "vendor"}

// dcbState is what the kernel said of a netdev; nil and false are "not said".
type dcbState struct {
	pfc     *byte // bit n: priority n is lossless
	ets     []byte
	apps    []dcbAppEntry
	hasApps bool
	trust   []byte // selectors in order
	buffer  []byte
	dcbx    *byte
}

type dcbAppEntry struct {
	selector, priority byte
	protocol           uint16
}

// encodeDCB is one RTM_GETDCB request: nlmsghdr, dcbmsg, the interface's name.
func encodeDCB(cmd byte, ifname string, seq uint32) []byte {
	attr := 4 + len(ifname) + 1
	size := 16 + 4 + (attr+3)&^3
	b := make([]byte, size)
	binary.NativeEndian.PutUint32(b[0:], uint32(size))
	binary.NativeEndian.PutUint16(b[4:], rtmGetDCB)
	binary.NativeEndian.PutUint16(b[6:], syscall.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(b[8:], seq)
	b[16], b[17] = syscall.AF_UNSPEC, cmd
	binary.NativeEndian.PutUint16(b[20:], uint16(attr))
	binary.NativeEndian.PutUint16(b[22:], dcbAttrIfname)
	copy(b[24:], ifname)
	return b
}

// decodeDCB adds one reply's payload (dcbmsg and attributes) to st.
func decodeDCB(payload []byte, st *dcbState) {
	eachAttr(payload, 4, func(kind uint16, v []byte) {
		switch kind {
		case dcbAttrIEEE:
			decodeIEEE(v, st)
		case dcbAttrCEE:
			decodeCEE(v, st)
		case dcbAttrDCBX:
			if len(v) >= 1 {
				st.dcbx = new(v[0])
			}
		}
	})
}

func decodeIEEE(b []byte, st *dcbState) {
	eachAttr(b, 0, func(kind uint16, v []byte) {
		switch kind {
		case ieeeETS:
			if len(v) >= sizeofETS {
				st.ets = v[:sizeofETS]
			}
		case ieeePFC:
			if len(v) >= sizeofPFCHead {
				st.pfc = new(v[1])
			}
		case ieeeAppTable:
			st.hasApps = true
			eachAttr(v, 0, func(kind uint16, app []byte) {
				if (kind == ieeeApp || kind == dcbApp) && len(app) >= 4 {
					st.apps = append(st.apps, dcbAppEntry{app[0], app[1], binary.NativeEndian.Uint16(app[2:])})
				}
			})
		case ieeeAppTrust:
			st.trust = []byte{}
			eachAttr(v, 0, func(_ uint16, sel []byte) {
				if len(sel) >= 1 {
					st.trust = append(st.trust, sel[0])
				}
			})
		case ieeeBuffer:
			if len(v) >= sizeofBuffer {
				st.buffer = v[:sizeofBuffer]
			}
		}
	})
}

// decodeCEE reads the older form: one attribute a priority, 1 to 8.
func decodeCEE(b []byte, st *dcbState) {
	eachAttr(b, 0, func(kind uint16, v []byte) {
		if kind != ceePFC {
			return
		}
		var bits byte
		eachAttr(v, 0, func(prio uint16, on []byte) {
			if prio >= 1 && prio <= 8 && len(on) >= 1 && on[0] != 0 {
				bits |= 1 << (prio - 1)
			}
		})
		st.pfc = &bits
	})
}

// dcbText writes a netdev's DCB facts as the section discover reads.
func dcbText(st dcbState, ofedTrust string) string {
	var b strings.Builder
	if t := trustOf(st, ofedTrust); t != "" {
		fmt.Fprintf(&b, "trust %s\n", t)
	}
	if st.pfc != nil {
		b.WriteString("pfc")
		for p := range 8 {
			if *st.pfc&(1<<p) != 0 {
				fmt.Fprintf(&b, " %d", p)
			}
		}
		b.WriteByte('\n')
	}
	for _, a := range dscpMap(st.apps) {
		fmt.Fprintf(&b, "dscp %d %d\n", a.protocol, a.priority)
	}
	if st.ets != nil {
		fmt.Fprintf(&b, "prio-tc%s\ntc-bw%s\ntc-tsa", numbers(st.ets[27:35]), numbers(st.ets[3:11]))
		for _, a := range st.ets[19:27] {
			name, ok := tsaNames[a]
			if !ok {
				name = fmt.Sprintf("tsa-%d", a)
			}
			b.WriteString(" " + name)
		}
		fmt.Fprintf(&b, "\nwilling %s\n", onOff(st.ets[0] != 0))
	}
	if st.dcbx != nil {
		b.WriteString("dcbx")
		for _, f := range dcbxNames {
			if *st.dcbx&f.flag != 0 {
				b.WriteString(" " + f.name)
			}
		}
		b.WriteByte('\n')
	}
	if st.buffer != nil {
		fmt.Fprintf(&b, "prio-buffer%s\nbuffer-size", numbers(st.buffer[:8]))
		for i := range 8 {
			fmt.Fprintf(&b, " %d", binary.NativeEndian.Uint32(st.buffer[8+4*i:]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// trustOf: what the driver says, else what the table implies. mlx5 has no
// trust attribute upstream: its first DSCP entry switches to DSCP trust and
// removing the last one back to PCP (drivers/net/ethernet/mellanox/mlx5/core/en_dcbnl.c).
func trustOf(st dcbState, ofedTrust string) string {
	switch {
	case ofedTrust == "dscp" || ofedTrust == "pcp":
		return ofedTrust
	case len(st.trust) > 0 && st.trust[0] == selDSCP:
		return "dscp"
	case len(st.trust) > 0 && st.trust[0] == selPCP:
		return "pcp"
	case slices.ContainsFunc(st.apps, func(a dcbAppEntry) bool { return a.selector == selDSCP }):
		return "dscp"
	case st.hasApps:
		return "pcp"
	}
	return ""
}

// dscpMap is the DSCP→priority part of the APP table, by DSCP. Several entries
// for one DSCP are legal; the highest priority is the one that counts.
func dscpMap(apps []dcbAppEntry) []dcbAppEntry {
	var out []dcbAppEntry
	for _, a := range apps {
		if a.selector == selDSCP && a.protocol < 64 && a.priority < 8 {
			out = append(out, a)
		}
	}
	slices.SortStableFunc(out, func(a, b dcbAppEntry) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(b.priority, a.priority))
	})
	return slices.CompactFunc(out, func(a, b dcbAppEntry) bool { return a.protocol == b.protocol })
}

func numbers(b []byte) string {
	s := ""
	for _, v := range b {
		s += fmt.Sprintf(" %d", v)
	}
	return s
}

func onOff(v bool) string {
	if v {
		return "on"
	}
	return "off"
}

// dcbOf asks the kernel about one netdev.
func (m *machine) dcbOf(ifname string) ([]byte, error) {
	sock, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	//nolint:errcheck // nothing was written that could be lost
	defer syscall.Close(sock)
	// The kernel answers at once; the time-out is for one that does not.
	tv := syscall.NsecToTimeval(int64(2 * time.Second))
	if err := syscall.SetsockoptTimeval(sock, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv); err != nil {
		return nil, err
	}
	if err := syscall.Bind(sock, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return nil, err
	}
	var st dcbState
	ask := func(cmd byte, seq uint32) error {
		if err := syscall.Sendto(sock, encodeDCB(cmd, ifname, seq), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
			return err
		}
		buf := make([]byte, 64<<10)
		n, _, err := syscall.Recvfrom(sock, buf, 0)
		if err != nil {
			return err
		}
		return dcbReplies(buf[:n], seq, &st)
	}
	if err := ask(dcbCmdIEEEGet, 1); err != nil {
		return nil, err
	}
	if st.dcbx == nil {
		// Not every driver has a DCBX engine to speak of.
		if err := ask(dcbCmdGetDCBX, 2); err != nil && err != syscall.EOPNOTSUPP {
			return nil, err
		}
	}
	if st.dcbx != nil && *st.dcbx&dcbxCEE != 0 && *st.dcbx&dcbxIEEE == 0 {
		if err := ask(dcbCmdCEEGet, 3); err != nil && err != syscall.EOPNOTSUPP {
			return nil, err
		}
	}
	return []byte(dcbText(st, m.read("sys/class/net/"+ifname+"/qos/trust"))), nil
}

// dcbReplies reads what one receive brought: the error the kernel sent, or
// replies to seq.
func dcbReplies(b []byte, seq uint32, st *dcbState) error {
	msgs, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return err
	}
	for _, msg := range msgs {
		switch {
		case msg.Header.Seq != seq:
		case msg.Header.Type == syscall.NLMSG_ERROR:
			if len(msg.Data) >= 4 {
				if errno := int32(binary.NativeEndian.Uint32(msg.Data)); errno != 0 {
					return syscall.Errno(-errno)
				}
			}
		default:
			decodeDCB(msg.Data, st)
		}
	}
	return nil
}
