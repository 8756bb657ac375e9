package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// What the image holds. Changing anything here makes another image: its folder
// is named after a hash of this text.
const (
	baseSuite    = "trixie"
	basePackages = "openmpi-bin libopenmpi-dev gcc libc6-dev ucx-utils perftest rdma-core ibverbs-utils rdmacm-utils " +
		"openssh-server iproute2 iputils-ping ethtool kmod xz-utils busybox-static tcpdump linux-image-amd64 procps hwloc-nox numactl"
	foamPackages = "openfoam openfoam-examples"
	// torch's own image: the torchrun of Debian 13 cannot start (it wants a store
	// that its torch was built without), that of Debian 12 does.
	torchSuite    = "bookworm"
	torchPackages = "python3-torch"
	recipe        = "2" // count up when buildImage changes
)

// contents are the image's suite and packages: FABRUN_LAB_TORCH=1 asks for the one
// with torch, which is half a gigabyte larger.
func contents() (suite, packages string) {
	if os.Getenv("FABRUN_LAB_TORCH") != "" {
		return torchSuite, basePackages + "\n" + torchPackages
	}
	return baseSuite, basePackages + "\n" + foamPackages
}

// bootModules are what the initramfs needs to reach the root file system; the
// rest is loaded from there.
var bootModules = []string{"virtio_pci", "9pnet_virtio", "9p", "overlay"}

// image is a guest's root file system with its kernel and initramfs, shared by
// all nodes and never written by them.
type image struct {
	dir string // root/
}

func (im image) root() string { return filepath.Join(im.dir, "root") }

// cacheDir is where images live, outside any checkout.
func cacheDir() (string, error) {
	if dir := os.Getenv("FABRUN_LAB_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "fabrun-lab"), nil
}

// cannot says why there can be no lab here. Tests skip with it.
type cannot struct{ why string }

func (c cannot) Error() string { return "no lab here: " + c.why }

// hostPackages are the tools this machine must have, and the Debian packages
// that bring them.
var hostPackages = [][2]string{{"qemu-system-x86_64", "qemu-system-x86"}, {"debootstrap", "debootstrap"}}

// needTools installs what is missing, as root, and says so.
func needTools(ctx context.Context, log io.Writer) error {
	var missing []string
	for _, p := range hostPackages {
		if _, err := exec.LookPath(p[0]); err != nil {
			missing = append(missing, p[1])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return cannot{strings.Join(missing, ", ") + " not installed, and no apt-get to install it"}
	}
	if os.Geteuid() != 0 {
		return cannot{"not installed: run 'apt-get install " + strings.Join(missing, " ") + "' as root"}
	}
	fmt.Fprintf(log, "lab: installing %s (apt-get, as root)\n", strings.Join(missing, " "))
	update := exec.CommandContext(ctx, "apt-get", "update", "-qq")
	install := exec.CommandContext(ctx, "apt-get", append([]string{"install", "-y", "-qq", "--no-install-recommends"}, missing...)...)
	for _, c := range []*exec.Cmd{update, install} {
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := c.CombinedOutput(); err != nil {
			return cannot{fmt.Sprintf("%s: %v\n%s", strings.Join(c.Args, " "), err, tail(out, 600))}
		}
	}
	return nil
}

// findImage returns the cached image, building it first where there is none.
// Two calls at once build once: the second waits.
func findImage(ctx context.Context, log io.Writer) (image, error) {
	cache, err := cacheDir()
	if err != nil {
		return image{}, err
	}
	if err := needTools(ctx, log); err != nil {
		return image{}, err
	}
	suite, packages := contents()
	sum := sha256.Sum256([]byte(strings.Join([]string{recipe, suite, packages, jobSource}, "\n")))
	im := image{filepath.Join(cache, hex.EncodeToString(sum[:6]))}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return im, err
	}
	lock, err := os.OpenFile(im.dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return im, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return im, err
	}
	if _, err := os.Stat(im.root()); err == nil {
		return im, nil
	}
	if os.Geteuid() != 0 {
		return im, cannot{"building the image with debootstrap needs root"}
	}
	fmt.Fprintf(log, "lab: building the guest image in %s (once; about two minutes)\n", im.dir)
	part := im.dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return im, err
	}
	if err := buildImage(ctx, image{part}, log); err != nil {
		return im, fmt.Errorf("build the guest image: %w", err)
	}
	return im, os.Rename(part, im.dir)
}

func buildImage(ctx context.Context, im image, log io.Writer) error {
	if err := os.MkdirAll(im.dir, 0o755); err != nil {
		return err
	}
	mirror, err := aptMirror()
	if err != nil {
		return err
	}
	suite, packages := contents()
	sh := func(name string, args ...string) error {
		c := exec.CommandContext(ctx, "nice", append([]string{"-n", "10", name}, args...)...)
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, tail(out, 1500))
		}
		return nil
	}
	fmt.Fprintln(log, "lab: debootstrap", suite, mirror)
	if err := sh("debootstrap", "--variant=minbase", suite, im.root(), mirror); err != nil {
		return err
	}
	// Nothing is started in the image, no documentation, no fsync for each file.
	for name, text := range map[string]string{
		"usr/sbin/policy-rc.d":     "#!/bin/sh\nexit 101\n",
		"etc/dpkg/dpkg.cfg.d/lab":  "path-exclude=/usr/share/doc/*\npath-include=/usr/share/doc/openfoam-examples/*\npath-exclude=/usr/share/man/*\npath-exclude=/usr/share/locale/*\nforce-unsafe-io\n",
		"etc/apt/apt.conf.d/99lab": "APT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\n",
	} {
		path := filepath.Join(im.root(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			return err
		}
	}
	fmt.Fprintln(log, "lab: installing", strings.ReplaceAll(packages, "\n", " "))
	if err := sh("chroot", append([]string{im.root(), "apt-get", "install", "-y", "-qq"}, strings.Fields(packages)...)...); err != nil {
		return err
	}
	if err := sh("chroot", im.root(), "apt-get", "clean"); err != nil {
		return err
	}
	// The tests' own job, built for the image's MPI.
	src := filepath.Join(im.root(), "usr/local/src/labmpi.c")
	if err := os.WriteFile(src, []byte(jobSource), 0o644); err != nil {
		return err
	}
	return sh("chroot", im.root(), "mpicc", "-O2", "-o", "/usr/local/bin/labmpi", "/usr/local/src/labmpi.c")
}

//go:embed job/labmpi.c
var jobSource string

// boot writes the image's kernel and an initramfs for it.
func (im image) boot(ctx context.Context, kernelFile, initrdFile string) error {
	kernels, err := filepath.Glob(filepath.Join(im.root(), "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return fmt.Errorf("%d kernels in the image, wanted one", len(kernels))
	}
	release := strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-")
	kernel, err := os.ReadFile(kernels[0])
	if err != nil {
		return err
	}
	if err := os.WriteFile(kernelFile, kernel, 0o644); err != nil {
		return err
	}
	var ramfs cpio
	for _, dir := range []string{"bin", "dev", "proc", "sys", "mods", "ro", "rw", "new"} {
		ramfs.add(dir, 0o040755, nil)
	}
	busybox, err := os.ReadFile(filepath.Join(im.root(), "usr/bin/busybox"))
	if err != nil {
		return err
	}
	ramfs.add("bin/busybox", 0o100755, busybox)
	var order []string
	for _, m := range bootModules {
		out, err := exec.CommandContext(ctx, "chroot", im.root(), "modprobe", "-S", release, "--show-depends", m).Output()
		if err != nil {
			return fmt.Errorf("modprobe --show-depends %s: %w", m, err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			if len(f) < 2 || f[0] != "insmod" {
				continue
			}
			name := strings.TrimSuffix(filepath.Base(f[1]), ".xz")
			if strings.Contains(" "+strings.Join(order, " ")+" ", " "+name+" ") {
				continue
			}
			order = append(order, name)
			text, err := exec.CommandContext(ctx, "chroot", im.root(), "sh", "-c", `case "$1" in *.xz) xz -dc "$1";; *) cat "$1";; esac`, "sh", f[1]).Output()
			if err != nil {
				return fmt.Errorf("unpack %s: %w", f[1], err)
			}
			ramfs.add("mods/"+name, 0o100644, text)
		}
	}
	ramfs.add("mods/order", 0o100644, []byte(strings.Join(order, "\n")+"\n"))
	ramfs.add("init", 0o100755, []byte(initScript))
	return os.WriteFile(initrdFile, ramfs.bytes(), 0o644)
}

// initScript is the initramfs: the image below, memory above, and over to the
// node's own script.
const initScript = `#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
while read m; do $b insmod /mods/$m; done </mods/order
o=trans=virtio,version=9p2000.L,msize=524288
$b mount -t 9p -o ro,cache=loose,$o root /ro || exec $b sh
$b mount -t tmpfs -o size=60% tmp /rw
$b mkdir /rw/up /rw/work
$b mount -t overlay -o lowerdir=/ro,upperdir=/rw/up,workdir=/rw/work root /new
$b mkdir -p /new/lab
$b mount -t 9p -o ro,cache=none,$o lab /new/lab
for d in proc sys dev; do $b mount --move /$d /new/$d; done
exec $b switch_root /new /bin/bash /lab/init
`

// aptMirror is the Debian mirror that this machine itself uses.
func aptMirror() (string, error) {
	files, err := filepath.Glob("/etc/apt/sources.list.d/*")
	if err != nil {
		return "", err
	}
	for _, name := range append(files, "/etc/apt/sources.list") {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "URIs:") || strings.HasPrefix(line, "deb ") {
				for _, w := range strings.Fields(line) {
					if strings.HasPrefix(w, "http") && strings.HasSuffix(strings.TrimRight(w, "/"), "/debian") {
						return w, nil
					}
				}
			}
		}
	}
	return "http://deb.debian.org/debian", nil
}

// cpio writes the "newc" archive that the kernel unpacks.
type cpio struct {
	buf bytes.Buffer
	ino int
}

func (c *cpio) add(name string, mode int, data []byte) {
	c.ino++
	fmt.Fprintf(&c.buf, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", c.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	c.buf.WriteString(name + "\x00")
	c.pad()
	c.buf.Write(data)
	c.pad()
}

func (c *cpio) pad() {
	for c.buf.Len()%4 != 0 {
		c.buf.WriteByte(0)
	}
}

func (c *cpio) bytes() []byte {
	c.add("TRAILER!!!", 0, nil)
	return c.buf.Bytes()
}

func tail(text []byte, n int) string {
	if len(text) > n {
		text = text[len(text)-n:]
	}
	return strings.TrimSpace(string(text))
}

// nodeMemory is what each node gets, in MB: torch wants more.
func nodeMemory() int {
	if os.Getenv("FABRUN_LAB_TORCH") != "" {
		return 2048
	}
	return 1024
}
