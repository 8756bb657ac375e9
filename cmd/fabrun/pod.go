package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"fabrun/launcher/report"
	"fabrun/topology/live"
)

// terminationLog is where a kubelet reads why a container ended (PodSpec,
// terminationMessagePath), up to 4096 bytes, and 12 KiB of all of a pod's.
const (
	terminationLog = "/dev/termination-log"
	maxTermination = 1024
)

// tellPod leaves what this run came to where 'kubectl describe pod' shows it. A
// machine, and a pod that says something itself, are left alone; so is a failure
// to write, which must not change the job's status.
func (a *app) tellPod() {
	if a.Ending == "" {
		return
	}
	if _, err := os.Lstat(terminationLog); err != nil || live.ContainerKind(a.Env) != "kubernetes" {
		return
	}
	if err := writeTermination(terminationLog, a.Ending); err != nil && a.Verbose {
		fmt.Fprintf(a.Own(), "the pod is not told: %v\n", err)
	}
}

// writeTermination writes one line into an empty regular file that is there.
func writeTermination(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = &fs.PathError{Op: "write", Path: name, Err: errors.New("no regular file")}
	case info.Size() > 0:
		err = &fs.PathError{Op: "write", Path: name, Err: errors.New("something is in it")}
	default:
		_, err = f.WriteString(report.Cut(strings.Join(strings.Fields(text), " "), maxTermination) + "\n")
	}
	return errors.Join(err, f.Close())
}
