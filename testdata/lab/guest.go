package main

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// rails is how many Soft-RoCE rails a node has.
const rails = 2

// segmentNames are the networks of the lab: one for ssh and start-up between
// the nodes, and the rails.
func segmentNames() []string {
	names := []string{"lan0"}
	for r := range rails {
		names = append(names, fmt.Sprintf("rail%d", r))
	}
	return names
}

// guest is one node: a QEMU process.
type guest struct {
	node int
	dir  string // console.log, qmp.sock, its ends of the segments
	port int    // of its sshd on 127.0.0.1
	cmd  *exec.Cmd
	done chan struct{} // closed when QEMU has ended
}

// mac is the address of a node's card on a segment; fabric.go counts on its
// last byte.
func mac(segment, node int) string { return fmt.Sprintf("52:54:00:fa:%02x:%02x", segment, node) }

// mgmtSegment is the card behind which QEMU itself answers, for ssh from outside.
const mgmtSegment = 0xff

// addr is a node's IPv4 address on the n-th segment: 10.1.0.N for the lan,
// 10.1.4.N and on for the rails.
func addr(segment, node int) string {
	if segment == 0 {
		return fmt.Sprintf("10.1.0.%d", node)
	}
	return fmt.Sprintf("10.1.%d.%d", 3+segment, node)
}

// start runs QEMU. The machine it describes is what discovery has to find:
//
//	NUMA node 0: pxb (bus 0x40) - root port - PCIe switch - rail0, and a second
//	             downstream port of the switch that is empty
//	NUMA node 1: pxb (bus 0x80) - root port - PCIe switch - rail1
//
// lan0 and the management card sit on the root complex itself.
func (g *guest) start(l *lab) error {
	args := []string{
		"-name", fmt.Sprintf("fabrun-lab-node%d", g.node), "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2,sockets=2,cores=1,threads=1",
		"-m", fmt.Sprintf("%dM", l.memory),
		"-object", fmt.Sprintf("memory-backend-ram,id=m0,size=%dM", l.memory/2), "-object", fmt.Sprintf("memory-backend-ram,id=m1,size=%dM", l.memory/2),
		"-numa", "node,nodeid=0,cpus=0,memdev=m0", "-numa", "node,nodeid=1,cpus=1,memdev=m1",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-serial", "file:" + filepath.Join(g.dir, "console.log"),
		"-qmp", "unix:" + filepath.Join(g.dir, "qmp.sock") + ",server=on,wait=off",
		"-kernel", l.kernel(), "-initrd", l.initrd(),
		"-append", fmt.Sprintf("console=ttyS0 quiet panic=-1 mitigations=off lab.node=%d lab.nodes=%d lab.rails=%d", g.node, len(l.guests), rails),
		"-virtfs", "local,path=" + l.image.root() + ",mount_tag=root,security_model=none,readonly=on,multidevs=remap",
		"-virtfs", "local,path=" + l.share() + ",mount_tag=lab,security_model=none,readonly=on,multidevs=remap",
		"-netdev", fmt.Sprintf("user,id=mgmt,restrict=on,ipv6=off,net=10.2.%d.0/24,hostfwd=tcp:127.0.0.1:%d-10.2.%d.15:22", g.node, g.port, g.node),
		"-device", "virtio-net-pci,netdev=mgmt,romfile=,mac=" + mac(mgmtSegment, g.node),
		"-netdev", "stream,id=lan0,server=off,addr.type=unix,addr.path=" + g.socket("lan0"),
		"-device", "virtio-net-pci,netdev=lan0,id=lan0card,romfile=,mac=" + mac(0, g.node),
	}
	for r := range rails {
		args = append(args,
			"-device", fmt.Sprintf("pxb-pcie,id=pxb%d,bus=pcie.0,bus_nr=%d,numa_node=%d", r, 0x40*(r+1), r%2),
			"-device", fmt.Sprintf("pcie-root-port,id=rp%d,bus=pxb%d,chassis=%d,slot=%d", r, r, 10*r+1, 10*r+1),
			"-device", fmt.Sprintf("x3130-upstream,id=up%d,bus=rp%d", r, r),
			"-device", fmt.Sprintf("xio3130-downstream,id=dna%d,bus=up%d,chassis=%d,slot=%d", r, r, 10*r+2, 10*r+2),
			"-device", fmt.Sprintf("xio3130-downstream,id=dnb%d,bus=up%d,chassis=%d,slot=%d", r, r, 10*r+3, 10*r+3),
			"-netdev", fmt.Sprintf("stream,id=rail%d,server=off,addr.type=unix,addr.path=%s", r, g.socket(fmt.Sprintf("rail%d", r))),
			// host_mtu gives an RDMA MTU of 4096.
			"-device", fmt.Sprintf("virtio-net-pci,netdev=rail%d,id=rail%dcard,bus=dna%d,host_mtu=4200,romfile=,mac=%s", r, r, r, mac(r+1, g.node)),
		)
	}
	log, err := os.Create(filepath.Join(g.dir, "qemu.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	g.cmd = exec.Command("qemu-system-x86_64", args...)
	g.cmd.Stdout, g.cmd.Stderr = log, log
	// Whatever happens to us, no guest stays behind.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := g.cmd.Start(); err != nil {
		return err
	}
	g.done = make(chan struct{})
	go func() {
		//nolint:errcheck // how a machine that is switched off ends does not matter
		_ = g.cmd.Wait()
		close(g.done)
	}()
	return nil
}

func (g *guest) socket(segment string) string { return filepath.Join(g.dir, segment+".sock") }

// off reports whether the machine was switched off.
func (g *guest) off() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// powerOff is what a pulled plug does.
func (g *guest) powerOff() {
	if g.cmd == nil || g.cmd.Process == nil {
		return
	}
	//nolint:errcheck // it may have ended by itself
	_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	<-g.done
}

// qmp sends one command to QEMU.
func (g *guest) qmp(command string, arguments map[string]any) error {
	conn, err := net.Dial("unix", filepath.Join(g.dir, "qmp.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	r, enc := bufio.NewScanner(conn), json.NewEncoder(conn)
	answer := func() error {
		for r.Scan() {
			var a struct {
				Return *json.RawMessage
				Error  *struct{ Desc string }
			}
			if err := json.Unmarshal(r.Bytes(), &a); err != nil {
				return err
			}
			if a.Error != nil {
				return errors.New(a.Error.Desc)
			}
			if a.Return != nil {
				return nil
			}
		}
		return errors.Join(r.Err(), errors.New("QEMU closed the connection"))
	}
	for _, c := range []map[string]any{{"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}} {
		if err := enc.Encode(c); err != nil {
			return err
		}
		if err := answer(); err != nil {
			return fmt.Errorf("%s: %w", c["execute"], err)
		}
	}
	return nil
}

// cable plugs a card's cable in or out: the guest sees the carrier come or go.
func (g *guest) cable(segment string, in bool) error {
	return g.qmp("set_link", map[string]any{"name": segment + "card", "up": in})
}

// key is an ed25519 key in OpenSSH's form.
type key struct {
	private string // PEM
	public  string // "ssh-ed25519 AAAA…"
	signer  ssh.Signer
}

func newKey() (key, error) {
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return key{}, err
	}
	block, err := ssh.MarshalPrivateKey(priv, "fabrun-lab")
	if err != nil {
		return key{}, err
	}
	signer, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		return key{}, err
	}
	return key{string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), signer}, nil
}

// nodeScript is the first process of a node: it names the cards by their
// addresses, makes the rails, starts sshd and reaps.
const nodeScript = `#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
for w in $(cat /proc/cmdline); do case $w in lab.*=*) declare "${w//./_}";; esac; done
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs tmp /tmp; chmod 1777 /tmp
mkdir -p /dev/pts /dev/shm /run/sshd
mount -t devpts -o mode=620,ptmxmode=666 pts /dev/pts
# The size is a limit, not a reservation.
mount -t tmpfs -o size=4g shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup 2>/dev/null
mount -t configfs config /sys/kernel/config 2>/dev/null
hostname "node$lab_node"
echo "node$lab_node" >/etc/hostname
{ echo 127.0.0.1 localhost; for ((i = 1; i <= lab_nodes; i++)); do echo "10.1.0.$i node$i"; done; } >/etc/hosts
ulimit -l unlimited
# fq_codel would mark packets itself (ECN 3) when the emulated CPU falls behind.
echo pfifo_fast >/proc/sys/net/core/default_qdisc
modprobe virtio_net
modprobe -a rdma_rxe ib_uverbs rdma_ucm ib_umad
modprobe sch_netem 2>/dev/null
ip link set lo up
for d in /sys/class/net/*; do
	case $(cat $d/address) in
	52:54:00:fa:ff:*) new=mgmt0 ;;
	52:54:00:fa:00:*) new=lan0 ;;
	52:54:00:fa:*) m=$(cat $d/address); m=${m#52:54:00:fa:}; new=rail$((16#${m%%:*} - 1)) ;;
	*) continue ;;
	esac
	[ "${d##*/}" = $new ] || ip link set "${d##*/}" name $new
	echo 0 >/proc/sys/net/ipv6/conf/$new/accept_dad
done
# No way leads from node to node over mgmt0; Open MPI would try it all the same.
printf '\nbtl_tcp_if_exclude = 127.0.0.0/8,sppp,mgmt0\n' >>/etc/openmpi/openmpi-mca-params.conf
ip link set mgmt0 up; ip addr add 10.2.$lab_node.15/24 dev mgmt0
ip link set lan0 up; ip addr add 10.1.0.$lab_node/24 dev lan0
for ((r = 0; r < lab_rails; r++)); do
	ip link set rail$r mtu 4200 up
	ip addr add 10.1.$((4 + r)).$lab_node/24 dev rail$r
	ip addr add fd00:$((4 + r))::$lab_node/64 dev rail$r nodad
	rdma link add rxe_$r type rxe netdev rail$r
done
install -m 700 -d /root/.ssh
install -m 600 /lab/ssh/user_key /root/.ssh/id_ed25519
install -m 600 /lab/ssh/authorized_keys /root/.ssh/authorized_keys
install -m 600 /lab/ssh/known_hosts /root/.ssh/known_hosts
# A node that was switched off is to be missed soon.
printf 'ServerAliveInterval 5\nServerAliveCountMax 3\nConnectTimeout 20\n' >/root/.ssh/config
install -m 600 /lab/ssh/host_key_$lab_node /run/sshd/host_key
[ -x /lab/bin/fabrun ] && cp /lab/bin/fabrun /usr/local/bin/fabrun
cp /lab/ssh/sshd_config /run/sshd/config
/usr/sbin/sshd -f /run/sshd/config
echo "lab: node$lab_node is up" >/dev/console
while :; do sleep 3600 & wait -n; done
`

const sshdConfig = `Port 22
HostKey /run/sshd/host_key
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
MaxStartups 100
MaxSessions 100
PerSourcePenalties no
LogLevel ERROR
PidFile /run/sshd/pid
SetEnv OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
Subsystem sftp internal-sftp
`
