package eyes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
)

// Multicast groups of rtnetlink (linux/rtnetlink.h): links, and addresses of both
// families.
const netChangeGroups = 0x1 | 0x10 | 0x100

// netChanges is told by the kernel of links and addresses that come, go or change.
// Nothing is asked and nothing is polled.
type netChanges struct{ from *os.File }

// listenNet begins to take down what the kernel tells.
func listenNet() (*netChanges, error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, syscall.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: netChangeGroups}); err != nil {
		//nolint:errcheck // nothing was written that close could lose
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("netlink groups: %w", err)
	}
	return &netChanges{os.NewFile(uintptr(fd), "netlink")}, nil
}

// each calls changed for every change of a netdev for which matters is true, until
// ctx ends. When the kernel had to drop messages, that counts as a change.
func (n *netChanges) each(ctx context.Context, matters func(netdev string) bool, changed func()) error {
	//nolint:errcheck // nothing was written that close could lose
	stop := context.AfterFunc(ctx, func() { _ = n.from.Close() })
	defer stop()
	buf := make([]byte, 64<<10)
	for {
		size, err := n.from.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.ENOBUFS):
			changed()
		case err != nil:
			return fmt.Errorf("netlink: %w", err)
		case slices.ContainsFunc(changedNetdevs(buf[:size], interfaceName), matters):
			changed()
		}
	}
}

// changedNetdevs are the netdevs that the messages of one datagram are about.
func changedNetdevs(b []byte, nameOf func(index int) string) []string {
	msgs, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return nil
	}
	var out []string
	for _, m := range msgs {
		switch m.Header.Type {
		case syscall.RTM_NEWLINK, syscall.RTM_DELLINK:
			// struct ifinfomsg: the index at 4. The name is in the message: the netdev
			// may be gone.
			if len(m.Data) < syscall.SizeofIfInfomsg {
				continue
			}
			attributes(m.Data[syscall.SizeofIfInfomsg:], func(kind uint16, v []byte) {
				if kind == syscall.IFLA_IFNAME && len(v) > 1 {
					out = append(out, string(v[:len(v)-1]))
				}
			})
		case syscall.RTM_NEWADDR, syscall.RTM_DELADDR:
			// struct ifaddrmsg: the index at 4.
			if len(m.Data) < syscall.SizeofIfAddrmsg {
				continue
			}
			if name := nameOf(int(binary.NativeEndian.Uint32(m.Data[4:]))); name != "" {
				out = append(out, name)
			}
		}
	}
	return out
}

func interfaceName(index int) string {
	i, err := net.InterfaceByIndex(index)
	if err != nil {
		return ""
	}
	return i.Name
}
