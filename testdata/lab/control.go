package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
)

// listenControl takes the few words that 'lab' says to the process that keeps
// a lab: one line in, text out.
func listenControl(l *lab, path string, cancel func()) (io.Closer, error) {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err == nil {
				l.control(conn, strings.Fields(line), cancel)
			}
			conn.Close()
		}
	}()
	return ln, nil
}

func (l *lab) control(w io.Writer, words []string, cancel func()) {
	switch {
	case len(words) == 1 && words[0] == "down":
		cancel()
	case len(words) == 1 && words[0] == "histogram":
		for _, name := range segmentNames() {
			histogram(w, name, l.segments[name].take())
		}
	case len(words) == 4 && words[0] == "cable":
		if err := l.pull(words[1], words[2], words[3]); err != nil {
			fmt.Fprintln(w, err)
		}
	default:
		fmt.Fprintln(w, "unknown command")
	}
}

// pull is 'lab cable': the cable of a node's card on a network, in or out.
func (l *lab) pull(node, segment, where string) error {
	if where != "in" && where != "out" || !slices.Contains(segmentNames(), segment) {
		return fmt.Errorf("lab cable NODE %s in|out", strings.Join(segmentNames(), "|"))
	}
	for _, g := range l.guests {
		if fmt.Sprint(g.node) == strings.TrimPrefix(node, "node") {
			return g.cable(segment, where == "in")
		}
	}
	return fmt.Errorf("no node %s in this lab of %d", node, len(l.guests))
}

// ask sends one line to the keeper and returns its answer.
func ask(dir, line string) (string, error) {
	conn, err := net.Dial("unix", filepath.Join(dir, "control"))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}
