package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// segment is one Ethernet between the nodes: a switch with a port per node. It
// speaks QEMU's stream protocol (four bytes of length, then the frame) over
// Unix sockets, so that there are no port numbers to collide, and it is where
// the tests look: what passes here was on the wire.
type segment struct {
	name  string
	mu    sync.Mutex
	ports map[int]*segPort
	seen  map[flow]int
	faults
	pcap *bufio.Writer
	file *os.File
}

type segPort struct {
	node  int
	queue chan []byte
	conn  net.Conn
}

// flow is a kind of frame in one direction.
type flow struct {
	From, To  int    // nodes
	Proto     string // "roce" (UDP 4791), "tcp", "other"
	DSCP, ECN int
}

// faults is what is wrong with a segment, per direction.
type faults struct {
	loss  map[[2]int]float64
	delay map[[2]int]time.Duration
}

const (
	maxFrame = 1 << 16
	maxQueue = 1 << 14
)

func newSegment(name string) *segment {
	return &segment{name: name, ports: map[int]*segPort{}, seen: map[flow]int{}, faults: faults{map[[2]int]float64{}, map[[2]int]time.Duration{}}}
}

// listen takes one node's connection at a time at path.
func (s *segment) listen(node int, path string) (io.Closer, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p := &segPort{node: node, queue: make(chan []byte, maxQueue), conn: conn}
			s.mu.Lock()
			s.ports[node] = p
			s.mu.Unlock()
			go p.send()
			go s.receive(p)
		}
	}()
	return l, nil
}

func (p *segPort) send() {
	for frame := range p.queue {
		if _, err := p.conn.Write(frame); err != nil {
			return
		}
	}
}

func (s *segment) receive(p *segPort) {
	defer func() {
		s.mu.Lock()
		if s.ports[p.node] == p {
			delete(s.ports, p.node)
		}
		close(p.queue)
		s.mu.Unlock()
		p.conn.Close()
	}()
	r := bufio.NewReaderSize(p.conn, 1<<18)
	for {
		var size [4]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(size[:])
		if n < 14 || n > maxFrame {
			return
		}
		frame := make([]byte, 4+n)
		copy(frame, size[:])
		if _, err := io.ReadFull(r, frame[4:]); err != nil {
			return
		}
		s.forward(p.node, frame)
	}
}

// forward sends a frame to the node whose address it bears, or to all others.
// The nodes' addresses are ours: the last byte is the node's number.
func (s *segment) forward(from int, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	eth := frame[4:]
	s.capture(eth)
	to := -1
	if eth[0]&1 == 0 {
		to = int(eth[5])
	}
	kind := classify(eth)
	for node, p := range s.ports {
		if node == from || to >= 0 && node != to {
			continue
		}
		way := [2]int{from, node}
		kind.From, kind.To = from, node
		s.seen[kind]++
		if loss := s.loss[way]; loss > 0 && rand.Float64() < loss {
			continue
		}
		if d := s.delay[way]; d > 0 {
			time.AfterFunc(d, func() { s.later(p, frame) })
			continue
		}
		p.put(frame)
	}
}

// later delivers a delayed frame, if the port is still there.
func (s *segment) later(p *segPort, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[p.node] == p {
		p.put(frame)
	}
}

func (p *segPort) put(frame []byte) {
	select {
	case p.queue <- frame:
	default: // a switch drops when its queue is full
	}
}

// classify looks at an Ethernet frame as far as the DSCP.
func classify(eth []byte) flow {
	kind, rest := binary.BigEndian.Uint16(eth[12:]), eth[14:]
	if kind == 0x8100 && len(rest) >= 4 {
		kind, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	f := flow{Proto: "other"}
	var proto byte
	switch {
	case kind == 0x0800 && len(rest) >= 20:
		f.DSCP, f.ECN = int(rest[1]>>2), int(rest[1]&3)
		proto = rest[9]
		rest = rest[min(int(rest[0]&15)*4, len(rest)):]
	case kind == 0x86dd && len(rest) >= 40:
		tc := rest[0]<<4 | rest[1]>>4
		f.DSCP, f.ECN = int(tc>>2), int(tc&3)
		proto = rest[6]
		rest = rest[40:]
	default:
		return flow{Proto: "other"}
	}
	switch {
	case proto == 6:
		f.Proto = "tcp"
	case proto == 17 && len(rest) >= 4 && binary.BigEndian.Uint16(rest[2:]) == 4791:
		f.Proto = "roce"
	}
	return f
}

// take returns what passed since the last call.
func (s *segment) take() map[flow]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = map[flow]int{}
	return seen
}

// setLoss drops a share of the frames of one direction; 0 none.
func (s *segment) setLoss(from, to int, share float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loss[[2]int{from, to}] = share
}

func (s *segment) setDelay(from, to int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay[[2]int{from, to}] = d
}

// startCapture writes every frame to a pcap file until stopCapture.
func (s *segment) startCapture(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	s.file, s.pcap = f, bufio.NewWriter(f)
	head := []uint32{0xa1b2c3d4, 2 | 4<<16, 0, 0, 256, 1}
	return binary.Write(s.pcap, binary.LittleEndian, head)
}

// capture keeps the first 256 bytes: all headers.
func (s *segment) capture(eth []byte) {
	if s.pcap == nil {
		return
	}
	now, kept := time.Now(), min(len(eth), 256)
	head := []uint32{uint32(now.Unix()), uint32(now.Nanosecond() / 1000), uint32(kept), uint32(len(eth))}
	if binary.Write(s.pcap, binary.LittleEndian, head) == nil {
		//nolint:errcheck // Flush reports it
		_, _ = s.pcap.Write(eth[:kept])
	}
}

func (s *segment) stopCapture() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pcap == nil {
		return errors.New("no capture is running")
	}
	err := errors.Join(s.pcap.Flush(), s.file.Close())
	s.pcap, s.file = nil, nil
	return err
}

// histogram writes flows for a person, RoCE first.
func histogram(w io.Writer, name string, seen map[flow]int) {
	for _, proto := range []string{"roce", "tcp", "other"} {
		for f, n := range seen {
			if f.Proto == proto {
				fmt.Fprintf(w, "%s node%d -> node%d  %-5s DSCP %2d ECN %d  %6d frames\n", name, f.From, f.To, f.Proto, f.DSCP, f.ECN, n)
			}
		}
	}
}
