package live

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// session is the address by which this host was reached, where sshd says so;
// the other end's is nobody's business.
func (m *machine) session() ([]byte, error) {
	// "client-address client-port server-address server-port" (ssh(1))
	if w := strings.Fields(m.getenv("SSH_CONNECTION")); len(w) == 4 {
		if a, err := netip.ParseAddr(w[2]); err == nil {
			return fmt.Appendf(nil, "ssh %s\n", a), nil
		}
	}
	return nil, nil
}

// clock reads this host's clock, whether something keeps it right, and from where.
func (m *machine) clock() ([]byte, error) {
	var b strings.Builder
	var tx syscall.Timex // modes 0: reads only, which needs no right (adjtimex(2))
	state, err := syscall.Adjtimex(&tx)
	fmt.Fprintf(&b, "time %s\n", time.Now().UTC().Format(time.RFC3339Nano))
	if err == nil {
		const timeError, unsync = 5, 0x40 // TIME_ERROR, STA_UNSYNC
		fmt.Fprintf(&b, "synchronised %s\n", yesNo(state != timeError && tx.Status&unsync == 0))
	}
	for _, s := range m.timeSources() {
		fmt.Fprintf(&b, "source %s\n", s)
	}
	return []byte(b.String()), nil
}

// timeSources are the time servers that configuration files give as addresses,
// and the interfaces that ptp4l uses. Names are not resolved: nobody is asked.
func (m *machine) timeSources() []string {
	var out []string
	add := func(s string) {
		if !slices.Contains(out, s) && len(out) < 16 {
			out = append(out, s)
		}
	}
	for _, file := range []string{"etc/chrony.conf", "etc/chrony/chrony.conf", "etc/ntp.conf", "etc/ntpsec/ntp.conf"} {
		for line := range strings.Lines(m.read(file)) {
			if w := strings.Fields(line); len(w) > 1 && slices.Contains([]string{"server", "peer", "pool"}, w[0]) {
				if a, err := netip.ParseAddr(w[1]); err == nil {
					add(a.String())
				}
			}
		}
	}
	for line := range strings.Lines(m.read("etc/systemd/timesyncd.conf")) {
		if list, ok := strings.CutPrefix(strings.TrimSpace(line), "NTP="); ok {
			for _, s := range strings.Fields(list) {
				if a, err := netip.ParseAddr(s); err == nil {
					add(a.String())
				}
			}
		}
	}
	for _, file := range []string{"etc/ptp4l.conf", "etc/linuxptp/ptp4l.conf"} {
		for line := range strings.Lines(m.read(file)) {
			line = strings.TrimSpace(line)
			if name, ok := strings.CutPrefix(line, "["); ok && strings.HasSuffix(name, "]") {
				if name = strings.TrimSuffix(name, "]"); name != "global" && m.exists("sys/class/net/"+name) {
					add("dev " + name)
				}
			}
		}
	}
	return out
}
