package eyes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// netlinkDump sends one dump request and calls each for every message of type
// want in the answer. Time and size are bounded: what does not come in a second
// is an error.
func netlinkDump(protocol int, msgType, want uint16, body []byte, each func(payload []byte) error) error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("netlink socket: %w", err)
	}
	//nolint:errcheck // nothing was written that close could lose
	defer syscall.Close(fd)
	timeout := syscall.NsecToTimeval(time.Second.Nanoseconds())
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &timeout); err != nil {
		return fmt.Errorf("netlink time limit: %w", err)
	}
	req := make([]byte, syscall.NLMSG_HDRLEN, syscall.NLMSG_HDRLEN+len(body))
	binary.NativeEndian.PutUint32(req[0:], uint32(syscall.NLMSG_HDRLEN+len(body)))
	binary.NativeEndian.PutUint16(req[4:], msgType)
	binary.NativeEndian.PutUint16(req[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(req[8:], 1)
	if err := syscall.Sendto(fd, append(req, body...), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return fmt.Errorf("netlink request: %w", err)
	}
	buf := make([]byte, 64<<10)
	for range 10_000 {
		n, _, err := syscall.Recvfrom(fd, buf, 0)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("netlink answer: %w", err)
		}
		done, err := netlinkMessages(buf[:n], want, each)
		if done || err != nil {
			return err
		}
	}
	return errors.New("netlink answer has no end")
}

// netlinkMessages walks the messages of one datagram.
func netlinkMessages(b []byte, want uint16, each func([]byte) error) (done bool, err error) {
	for len(b) >= syscall.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < syscall.NLMSG_HDRLEN || size > len(b) {
			return true, errors.New("netlink message of impossible length")
		}
		payload := b[syscall.NLMSG_HDRLEN:size]
		switch t := binary.NativeEndian.Uint16(b[4:]); t {
		case syscall.NLMSG_DONE:
			return true, nil
		case syscall.NLMSG_ERROR:
			if len(payload) >= 4 {
				if code := int32(binary.NativeEndian.Uint32(payload)); code != 0 {
					return true, fmt.Errorf("netlink: %w", syscall.Errno(-code))
				}
			}
			return true, nil
		case want:
			if err := each(payload); err != nil {
				return true, err
			}
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}

// attributes walks netlink attributes; nested and byte-order flags are taken
// off the type (linux/netlink.h).
func attributes(b []byte, each func(kind uint16, value []byte)) {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return
		}
		each(binary.NativeEndian.Uint16(b[2:])&0x3fff, b[4:size])
		b = b[min((size+3)&^3, len(b)):]
	}
}
