package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: lab up [NODES] [FABRUN]   start NODES nodes (2) with this fabrun binary
       lab shell NODE [CMD…]      a shell on a node, or one command
       lab switch                 what passed between the nodes since the last call
       lab cable NODE NET in|out  plug a cable (rail0, rail1, lan0) in or out
       lab down                   end it and leave nothing but the image
       lab image                  build the image only
The lab lives in $FABRUN_LAB_DIR, or /tmp/fabrun-lab.UID: another folder is another lab.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := command(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
	}
	os.Exit(code)
}

func labDir() string {
	if dir := os.Getenv("FABRUN_LAB_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("fabrun-lab.%d", os.Getuid()))
}

func command(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New(usage)
	}
	dir := labDir()
	switch args[0] {
	case "image":
		im, err := findImage(ctx, os.Stderr)
		if err == nil {
			fmt.Println(im.root())
		}
		return status(err), err
	case "up":
		err := up(ctx, dir, args[1:])
		return status(err), err
	case "serve": // what up leaves running
		err := serve(ctx, dir, args[1:])
		return status(err), err
	case "shell":
		return shell(ctx, dir, args[1:])
	case "switch":
		text, err := ask(dir, "histogram")
		fmt.Print(text)
		return status(err), err
	case "cable":
		text, err := ask(dir, strings.Join(args, " "))
		if err == nil && text != "" {
			err = errors.New(strings.TrimSpace(text))
		}
		return status(err), err
	case "down":
		err := down(dir)
		return status(err), err
	}
	return 2, errors.New(usage)
}

func status(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// up starts a process that keeps the lab, and waits until it is ready.
func up(ctx context.Context, dir string, args []string) error {
	if _, err := os.Stat(filepath.Join(dir, "control")); err == nil {
		return fmt.Errorf("a lab is up in %s ('lab down' ends it; FABRUN_LAB_DIR names another folder)", dir)
	}
	if _, err := findImage(ctx, os.Stderr); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// "go run" removes its binary when it ends; the keeper needs one that stays.
	keeper := filepath.Join(dir, "lab")
	text, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	if err := os.WriteFile(keeper, text, 0o700); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	c := exec.Command(keeper, append([]string{"serve"}, args...)...)
	c.Env = append(os.Environ(), "FABRUN_LAB_DIR="+dir)
	c.Stdout, c.Stderr = w, w
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	w.Close()
	stopped := context.AfterFunc(ctx, func() { _ = c.Process.Signal(syscall.SIGTERM) })
	defer stopped()
	out, err := io.ReadAll(r) // the keeper closes its end when it is ready
	os.Stderr.Write(out)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "control")); err != nil {
		return errors.New("the lab did not start")
	}
	fmt.Printf("lab is up in %s\n", dir)
	return nil
}

// serve keeps a lab until it is told to end.
func serve(ctx context.Context, dir string, args []string) error {
	nodes, fabrun := 2, ""
	if len(args) > 0 {
		if _, err := fmt.Sscan(args[0], &nodes); err != nil || nodes < 1 || nodes > 16 {
			return fmt.Errorf("%q is no number of nodes from 1 to 16", args[0])
		}
	}
	if len(args) > 1 {
		fabrun = args[1]
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := startLab(ctx, dir, nodes, fabrun, os.Stderr)
	if err != nil {
		return err
	}
	for _, g := range l.guests {
		if err := os.WriteFile(filepath.Join(g.dir, "port"), fmt.Append(nil, g.port), 0o600); err != nil {
			return errors.Join(err, l.close())
		}
	}
	control, err := listenControl(l, filepath.Join(dir, "control"), cancel)
	if err != nil {
		return errors.Join(err, l.close())
	}
	l.closers = append(l.closers, control)
	// Ready: whoever waits for the end of our output may go on.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return errors.Join(err, l.close())
	}
	for fd := range 3 {
		if err := syscall.Dup2(int(null.Fd()), fd); err != nil {
			return errors.Join(err, l.close())
		}
	}
	<-ctx.Done()
	return l.close()
}

// shell hands the terminal to the system's ssh.
func shell(ctx context.Context, dir string, args []string) (int, error) {
	if len(args) == 0 {
		args = []string{"1"}
	}
	node := "node" + strings.TrimPrefix(args[0], "node")
	port, err := os.ReadFile(filepath.Join(dir, node, "port"))
	if err != nil {
		return 1, fmt.Errorf("no such node of a running lab: %w", err)
	}
	c := exec.CommandContext(ctx, "ssh", append([]string{
		"-q", "-i", filepath.Join(dir, "key"), "-p", string(port), "-o", "UserKnownHostsFile=" + filepath.Join(dir, "share/ssh/known_hosts"),
		"-o", "HostKeyAlias=" + node, "-o", "IdentitiesOnly=yes", "root@127.0.0.1",
	}, args[1:]...)...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return status(err), err
}

// down asks the keeper to end, and waits until the folder is gone.
func down(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, err := ask(dir, "down"); err != nil {
		// No keeper: what is left is a folder.
		return os.RemoveAll(dir)
	}
	for range 200 {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the lab in %s has not ended after 10 s", dir)
}
