package eyes

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"fabrun/launcher/watch"
)

// Numbers of linux/sock_diag.h, linux/inet_diag.h and linux/tcp.h.
const (
	netlinkSockDiag   = 4
	sockDiagByFamily  = 20
	inetDiagInfo      = 2
	inetDiagMsgBytes  = 72
	tcpInfoAcked      = 120 // offset of tcpi_bytes_acked
	tcpInfoReceived   = 128 // of tcpi_bytes_received
	statesWithData    = 1<<1 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11
	maxTrackedSockets = 1 << 18
)

// tcpSocket is one TCP connection of this host.
type tcpSocket struct {
	cookie       uint64
	local, peer  netip.AddrPort
	inode        uint32
	acked, recvd uint64
}

// parseInetDiag reads one inet_diag_msg and its tcp_info; ok is false where the
// kernel gives no byte counts (before 4.2).
func parseInetDiag(b []byte) (s tcpSocket, ok bool) {
	if len(b) < inetDiagMsgBytes {
		return s, false
	}
	sport, dport := binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
	addr := func(raw []byte) netip.Addr {
		if b[0] == syscall.AF_INET {
			return netip.AddrFrom4([4]byte(raw[:4]))
		}
		return netip.AddrFrom16([16]byte(raw[:16])).Unmap()
	}
	s.local = netip.AddrPortFrom(addr(b[8:24]), sport)
	s.peer = netip.AddrPortFrom(addr(b[24:40]), dport)
	s.cookie = uint64(binary.NativeEndian.Uint32(b[44:])) | uint64(binary.NativeEndian.Uint32(b[48:]))<<32
	s.inode = binary.NativeEndian.Uint32(b[68:])
	attributes(b[inetDiagMsgBytes:], func(kind uint16, v []byte) {
		if kind == inetDiagInfo && len(v) >= tcpInfoReceived+8 {
			s.acked = binary.NativeEndian.Uint64(v[tcpInfoAcked:])
			s.recvd = binary.NativeEndian.Uint64(v[tcpInfoReceived:])
			ok = true
		}
	})
	return s, ok
}

// tcpSockets asks the kernel for every TCP connection that can hold data.
func tcpSockets() ([]tcpSocket, error) {
	var out []tcpSocket
	var errs []error
	told := false
	for _, family := range []byte{syscall.AF_INET, syscall.AF_INET6} {
		req := make([]byte, 8+48)
		req[0], req[1], req[2] = family, syscall.IPPROTO_TCP, 1<<(inetDiagInfo-1)
		binary.NativeEndian.PutUint32(req[4:], statesWithData)
		err := netlinkDump(netlinkSockDiag, sockDiagByFamily, sockDiagByFamily, req, func(b []byte) error {
			if s, ok := parseInetDiag(b); ok && len(out) < maxTrackedSockets {
				out = append(out, s)
			}
			return nil
		})
		if err == nil {
			told = true
		} else {
			errs = append(errs, err)
		}
	}
	if !told {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

// peerMeter adds up what TCP connections moved, by the address of the peer.
// Connections come and go between two looks: each keeps its last count.
type peerMeter struct {
	open   map[uint64]tcpSocket
	total  map[netip.Addr]watch.PeerBytes // of connections that are gone
	fabric map[netip.Addr]bool            // own addresses on netdevs that share a wire with an RDMA port
}

// look takes the connections there are now; the result has every peer once.
// Sockets for which skip says so are left out: the launcher's own daemons and
// log-in sessions move program files and standard streams.
func (m *peerMeter) look(now []tcpSocket, skip func(tcpSocket) bool) []watch.PeerBytes {
	if m.total == nil {
		m.total = map[netip.Addr]watch.PeerBytes{}
	}
	open := make(map[uint64]tcpSocket, len(now))
	for _, s := range now {
		if !skip(s) {
			open[s.cookie] = s
		}
	}
	for cookie, s := range m.open {
		if _, still := open[cookie]; !still && len(m.total) < maxTrackedSockets {
			m.total[s.peer.Addr()] = m.plus(m.total[s.peer.Addr()], s)
		}
	}
	m.open = open
	sum := make(map[netip.Addr]watch.PeerBytes, len(m.total))
	for a, p := range m.total {
		sum[a] = p
	}
	for _, s := range open {
		sum[s.peer.Addr()] = m.plus(sum[s.peer.Addr()], s)
	}
	out := make([]watch.PeerBytes, 0, len(sum))
	for a, p := range sum {
		p.Peer = a.String()
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b watch.PeerBytes) int { return strings.Compare(a.Peer, b.Peer) })
	return out
}

func (m *peerMeter) plus(p watch.PeerBytes, s tcpSocket) watch.PeerBytes {
	p.Tx += s.acked
	p.Rx += s.recvd
	if m.fabric[s.local.Addr()] {
		p.Fabric += s.acked + s.recvd
	}
	return p
}

// runtimePrograms start ranks, log in or carry their standard streams; what they
// move is not the job's data.
var runtimePrograms = []string{
	"sshd", "ssh", "sshd-session", "mpirun", "mpiexec", "orterun", "orted", "prterun", "prte", "prted",
	"hydra_pmi_proxy", "hydra_bstrap_proxy", "mpiexec.hydra", "hydra_bstrap_pr", "pmi_proxy", "srun", "slurmstepd", "slurmd", "fabrun",
	"pbs_mom", "pbs_tmrsh", "kubelet", "containerd",
}

// runtimeSockets returns the inodes of sockets that runtimePrograms hold, as far
// as this user may look.
func runtimeSockets(proc string) map[uint32]bool {
	out := map[uint32]bool{}
	dirs, err := os.ReadDir(proc)
	if err != nil {
		return out
	}
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(proc, d.Name(), "comm"))
		if err != nil || !slices.Contains(runtimePrograms, strings.TrimSpace(string(comm))) {
			continue
		}
		fds := filepath.Join(proc, d.Name(), "fd")
		entries, err := os.ReadDir(fds)
		if err != nil {
			continue
		}
		for _, e := range entries {
			link, err := os.Readlink(filepath.Join(fds, e.Name()))
			if err != nil {
				continue
			}
			num, ok := strings.CutPrefix(link, "socket:[")
			if !ok {
				continue
			}
			if n, err := strconv.ParseUint(strings.TrimSuffix(num, "]"), 10, 32); err == nil {
				out[uint32(n)] = true
			}
		}
	}
	return out
}

// skipRuntime leaves out sockets of runtimePrograms and of ssh's port.
func skipRuntime(inodes map[uint32]bool) func(tcpSocket) bool {
	return func(s tcpSocket) bool {
		return inodes[s.inode] || s.local.Port() == 22 || s.peer.Port() == 22
	}
}
