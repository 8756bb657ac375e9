package pasted

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
)

// Flow is what one direction between two addresses was marked with.
type Flow struct {
	From    netip.Addr
	To      netip.Addr
	Packets int
	Bytes   int64       // of the captured packets' IP length
	DSCP    map[int]int // DSCP → packets
	ECN     map[int]int // 0 not capable, 1 ECT(1), 2 ECT(0), 3 congestion experienced
	PCP     map[int]int // 802.1Q priority → packets, tagged ones only
	CNPs    int         // congestion notification packets (BTH opcode 0x81)
	CNPDSCP map[int]int // their DSCP
}

// Capture is the RoCEv2 traffic of a capture file.
type Capture struct {
	Packets   int  // all packets of the file
	RoCE      int  // to UDP port 4791
	Truncated bool // the file ends in the middle of a packet
	Skipped   int  // packets of link types or shapes that are not read
	Flows     []Flow
}

// RoCEPort is RoCEv2's UDP destination port (IANA).
const RoCEPort = 4791

// cnpOpcode is the BTH opcode of a congestion notification packet (IBTA annex A17).
const cnpOpcode = 0x81

// Link types (tcpdump.org/linktypes.html).
const (
	linkEthernet = 1
	linkRaw      = 101
	linkLoop     = 108
	linkSLL      = 113
	linkIPv4     = 228
	linkIPv6     = 229
	linkSLL2     = 276
	linkNull     = 0
)

// maxPacket bounds one captured packet: more is a damaged file.
const maxPacket = 1 << 20

// ReadPcap reads a classic pcap or a pcapng capture and counts how RoCEv2
// packets are marked. It holds one packet at a time. A file that is cut short
// gives what came before and Truncated; one that is no capture is an error.
func ReadPcap(r io.Reader) (Capture, error) {
	br := bufio.NewReaderSize(r, 1<<16)
	magic, err := br.Peek(4)
	if err != nil {
		return Capture{}, errors.New("too short for a capture")
	}
	c := counter{flows: map[[2]netip.Addr]*Flow{}}
	switch {
	case binary.BigEndian.Uint32(magic) == 0x0a0d0d0a:
		err = c.pcapng(br)
	default:
		err = c.classic(br)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.out.Truncated = errors.Is(err, io.ErrUnexpectedEOF)
		err = nil
	}
	for _, f := range c.flows {
		c.out.Flows = append(c.out.Flows, *f)
	}
	slices.SortFunc(c.out.Flows, func(a, b Flow) int {
		if n := a.From.Compare(b.From); n != 0 {
			return n
		}
		return a.To.Compare(b.To)
	})
	return c.out, err
}

type counter struct {
	out   Capture
	flows map[[2]netip.Addr]*Flow
}

func (c *counter) classic(r io.Reader) error {
	var h [24]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return errors.New("too short for a capture")
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch binary.LittleEndian.Uint32(h[:]) {
	case 0xa1b2c3d4, 0xa1b23c4d:
	case 0xd4c3b2a1, 0x4d3cb2a1:
		order = binary.BigEndian
	default:
		return fmt.Errorf("no pcap or pcapng file (begins %x)", h[:4])
	}
	// The upper bits of the link type hold the frame check length.
	link := int(order.Uint32(h[20:]) & 0x0fffffff)
	var buf []byte
	for {
		var p [16]byte
		if _, err := io.ReadFull(r, p[:]); err != nil {
			return err
		}
		n := order.Uint32(p[8:])
		if n > maxPacket {
			return fmt.Errorf("packet %d says it has %d bytes: the file is damaged", c.out.Packets+1, n)
		}
		buf = slices.Grow(buf[:0], int(n))[:n]
		if err := readAll(r, buf); err != nil {
			return err
		}
		c.packet(link, buf)
	}
}

// readAll turns an end of file inside a packet into what it is.
func readAll(r io.Reader, buf []byte) error {
	_, err := io.ReadFull(r, buf)
	if errors.Is(err, io.EOF) && len(buf) > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *counter) pcapng(r io.Reader) error {
	var order binary.ByteOrder = binary.LittleEndian
	var links []int // by interface of the section
	var snap []uint32
	var buf []byte
	for {
		var h [12]byte
		if _, err := io.ReadFull(r, h[:8]); err != nil {
			return err
		}
		kind := order.Uint32(h[:4])
		read := 8
		if kind == 0x0a0d0d0a {
			if err := readAll(r, h[8:12]); err != nil {
				return err
			}
			switch {
			case binary.LittleEndian.Uint32(h[8:]) == 0x1a2b3c4d:
				order = binary.LittleEndian
			case binary.BigEndian.Uint32(h[8:]) == 0x1a2b3c4d:
				order = binary.BigEndian
			default:
				return errors.New("a pcapng section without a byte-order mark")
			}
			links, snap, read = nil, nil, 12
		}
		n := int64(order.Uint32(h[4:8]))
		if n < 12 || n%4 != 0 || n > maxPacket+4096 || n < int64(read)+4 {
			return fmt.Errorf("a pcapng block of %d bytes: the file is damaged", n)
		}
		buf = slices.Grow(buf[:0], int(n)-read)[:int(n)-read]
		if err := readAll(r, buf); err != nil {
			return err
		}
		body := buf[:len(buf)-4]
		switch kind {
		case 1: // interface description
			if len(body) >= 8 && len(links) < 4096 {
				links, snap = append(links, int(order.Uint16(body))), append(snap, order.Uint32(body[4:]))
			}
		case 6: // enhanced packet
			if len(body) < 20 {
				continue
			}
			i, k := order.Uint32(body), order.Uint32(body[12:])
			if int64(i) < int64(len(links)) && int64(k) <= int64(len(body)-20) {
				c.packet(links[i], body[20:20+k])
			} else {
				c.out.Packets++
				c.out.Skipped++
			}
		case 3: // simple packet: cut at the snap length of interface 0
			if len(body) < 4 || len(links) == 0 {
				continue
			}
			k := int64(order.Uint32(body))
			if snap[0] > 0 {
				k = min(k, int64(snap[0]))
			}
			c.packet(links[0], body[4:4+min(k, int64(len(body)-4))])
		}
	}
}

// packet looks through link layer, VLAN tags and IP for RoCEv2.
func (c *counter) packet(link int, p []byte) {
	c.out.Packets++
	be := binary.BigEndian
	pcp := -1
	var proto uint16
	switch link {
	case linkEthernet:
		if len(p) < 14 {
			c.out.Skipped++
			return
		}
		proto, p = be.Uint16(p[12:]), p[14:]
	case linkSLL:
		if len(p) < 16 {
			c.out.Skipped++
			return
		}
		proto, p = be.Uint16(p[14:]), p[16:]
	case linkSLL2:
		if len(p) < 20 {
			c.out.Skipped++
			return
		}
		proto, p = be.Uint16(p), p[20:]
	case linkNull, linkLoop:
		if len(p) < 4 {
			c.out.Skipped++
			return
		}
		p = p[4:]
		proto = ipProto(p)
	case linkRaw, linkIPv4, linkIPv6, 12, 14:
		proto = ipProto(p)
	default:
		c.out.Skipped++
		return
	}
	for proto == 0x8100 || proto == 0x88a8 || proto == 0x9100 {
		if len(p) < 4 {
			c.out.Skipped++
			return
		}
		pcp = int(p[0] >> 5)
		proto, p = be.Uint16(p[2:]), p[4:]
	}
	var from, to netip.Addr
	var tos byte
	var length int64
	switch proto {
	case 0x0800:
		if len(p) < 20 || p[0]>>4 != 4 {
			return
		}
		hl := int(p[0]&15) * 4
		// A later fragment has no UDP header; RoCE never fragments.
		if hl < 20 || len(p) < hl+8 || p[9] != 17 || be.Uint16(p[6:])&0x1fff != 0 {
			return
		}
		tos, length = p[1], int64(be.Uint16(p[2:]))
		from, to = netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
		p = p[hl:]
	case 0x86dd:
		if len(p) < 40 || p[0]>>4 != 6 {
			return
		}
		tos, length = byte(be.Uint16(p)>>4), int64(be.Uint16(p[4:]))+40
		from, to = netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40]))
		next := p[6]
		p = p[40:]
		for range 8 { // extension headers (RFC 8200)
			if next != 0 && next != 43 && next != 60 {
				break
			}
			if len(p) < 8 || len(p) < 8+int(p[1])*8 {
				return
			}
			next, p = p[0], p[8+int(p[1])*8:]
		}
		if next != 17 || len(p) < 8 {
			return
		}
	default:
		return
	}
	if be.Uint16(p[2:]) != RoCEPort {
		return
	}
	c.out.RoCE++
	key := [2]netip.Addr{from, to}
	f := c.flows[key]
	if f == nil {
		if len(c.flows) >= 65536 {
			c.out.Skipped++
			return
		}
		f = &Flow{From: from, To: to, DSCP: map[int]int{}, ECN: map[int]int{}, PCP: map[int]int{}, CNPDSCP: map[int]int{}}
		c.flows[key] = f
	}
	f.Packets++
	f.Bytes += length
	if pcp >= 0 {
		f.PCP[pcp]++
	}
	if len(p) > 8 && p[8] == cnpOpcode {
		f.CNPs++
		f.CNPDSCP[int(tos>>2)]++
		return
	}
	f.DSCP[int(tos>>2)]++
	f.ECN[int(tos&3)]++
}

func ipProto(p []byte) uint16 {
	if len(p) > 0 && p[0]>>4 == 6 {
		return 0x86dd
	}
	return 0x0800
}
