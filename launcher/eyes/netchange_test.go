package eyes

import (
	"context"
	"encoding/binary"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/watch"
)

// message is one message of rtnetlink.
func message(kind uint16, body []byte) []byte {
	b := make([]byte, syscall.NLMSG_HDRLEN, syscall.NLMSG_HDRLEN+len(body))
	binary.NativeEndian.PutUint32(b, uint32(syscall.NLMSG_HDRLEN+len(body)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	b = append(b, body...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// linkMessage is about a netdev by its name, addrMessage by its index.
func linkMessage(kind uint16, name string) []byte {
	attr := make([]byte, 4, 4+len(name)+1)
	binary.NativeEndian.PutUint16(attr, uint16(4+len(name)+1))
	binary.NativeEndian.PutUint16(attr[2:], syscall.IFLA_IFNAME)
	return message(kind, append(make([]byte, syscall.SizeofIfInfomsg), append(append(attr, name...), 0)...))
}

func addrMessage(kind uint16, index uint32) []byte {
	body := make([]byte, syscall.SizeofIfAddrmsg)
	binary.NativeEndian.PutUint32(body[4:], index)
	return message(kind, body)
}

func names(index int) string { return map[int]string{7: "eth7", 9: "docker0"}[index] }

func TestChangedNetdevs(t *testing.T) {
	all := slices.Concat(linkMessage(syscall.RTM_NEWLINK, "eth3"), addrMessage(syscall.RTM_DELADDR, 7), addrMessage(syscall.RTM_NEWADDR, 4711), linkMessage(syscall.RTM_DELLINK, "veth12"), message(syscall.RTM_NEWROUTE, make([]byte, 12)))
	if d := cmp.Diff([]string{"eth3", "eth7", "veth12"}, changedNetdevs(all, names)); d != "" {
		t.Error(d)
	}
}

func FuzzChangedNetdevs(f *testing.F) {
	f.Add(linkMessage(syscall.RTM_NEWLINK, "eth3"))
	f.Add(addrMessage(syscall.RTM_DELADDR, 7))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range changedNetdevs(b, names) {
			if name == "" {
				t.Error("a netdev without a name")
			}
		}
	})
}

// TestNetChangesTellsOfRailsOnly: what another netdev does wakes nobody; the end of
// the context ends it.
func TestNetChangesTellsOfRailsOnly(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	kernel := os.NewFile(uintptr(fds[0]), "kernel")
	defer kernel.Close()
	for _, m := range [][]byte{linkMessage(syscall.RTM_NEWLINK, "docker0"), linkMessage(syscall.RTM_NEWLINK, "eth3"), linkMessage(syscall.RTM_NEWLINK, "veth1"), linkMessage(syscall.RTM_NEWLINK, "eth4")} {
		if _, err := kernel.Write(m); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := 0
	var asked []string
	n := &netChanges{os.NewFile(uintptr(fds[1]), "netlink")}
	err = n.each(ctx, func(netdev string) bool {
		asked = append(asked, netdev)
		return netdev[:3] == "eth"
	}, func() {
		if told++; told == 2 {
			cancel()
		}
	})
	if err != nil || told != 2 || len(asked) != 4 {
		t.Errorf("told %d times of %v: %v", told, asked, err)
	}
}

// TestListenNet opens the real thing.
func TestListenNet(t *testing.T) {
	n, err := listenNet()
	if err != nil {
		t.Skipf("the kernel does not tell here: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.each(ctx, func(string) bool { return true }, func() {}); err != nil {
		t.Error(err)
	}
}

func TestGIDTable(t *testing.T) {
	const zero = "0000:0000:0000:0000:0000:0000:0000:0000\n"
	sys := fstest.MapFS{}
	file := func(name, text string) { sys["port/"+name] = &fstest.MapFile{Data: []byte(text)} }
	file("gids/0", "fe80:0000:0000:0000:5054:00ff:fefa:0101\n")
	file("gid_attrs/types/0", "RoCE v2\n")
	file("gid_attrs/ndevs/0", "rail0\n")
	file("gids/1", zero)
	file("gids/2", "0000:0000:0000:0000:0000:ffff:0a01:0401\n")
	file("gid_attrs/types/2", "RoCE v2\n")
	file("gids/3", zero)
	want := []watch.GID{{Index: 0, GID: "fe80::5054:ff:fefa:101", Type: "RoCE v2", Netdev: "rail0"}, {Index: 2, GID: "::ffff:10.1.4.1", Type: "RoCE v2"}}
	if d := cmp.Diff(want, gidTable(sys, "port")); d != "" {
		t.Error(d)
	}
	if got := gidTable(sys, "nowhere"); got != nil {
		t.Errorf("an unreadable table is %v, want nil: it is not empty", got)
	}
	if got := gidTable(fstest.MapFS{"port/gids/0": {Data: []byte(zero)}}, "port"); got == nil || len(got) != 0 {
		t.Errorf("a table of nothing is %v, want an empty one", got)
	}
}
