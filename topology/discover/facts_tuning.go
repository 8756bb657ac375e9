package discover

import (
	"fmt"
	"strconv"

	"fabrun/topology"
)

func parseCPUFreq(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, line string) error {
		switch w[0] {
		case "driver": // for people
		case "governor":
			if len(w) != 3 {
				return fmt.Errorf("governor: want name and number")
			}
			n, err := strconv.Atoi(w[2])
			if err != nil || n < 1 {
				return fmt.Errorf("governor %s: want a number, got %q", w[1], w[2])
			}
			if h.CPU.Governors == nil {
				h.CPU.Governors = map[string]int{}
			}
			h.CPU.Governors[w[1]] = n
		}
		return nil
	})
}

// function is the PCI device of an address, nil for one that the tree has not.
func function(h *topology.Host, addr string) *topology.PCIDevice {
	for i := range h.PCI {
		if h.PCI[i].Address == addr {
			return &h.PCI[i]
		}
	}
	return nil
}

func parseIRQs(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, _ string) error {
		if len(w) != 3 {
			return fmt.Errorf("want function, number and CPUs")
		}
		n, err := strconv.Atoi(w[1])
		if err != nil || n < 0 {
			return fmt.Errorf("%s: want a number, got %q", w[0], w[1])
		}
		cpus, err := topology.ParseCPUs(w[2])
		if err != nil {
			return fmt.Errorf("%s: %w", w[0], err)
		}
		if d := function(h, w[0]); d != nil {
			d.IRQs, d.IRQCPUs = &n, cpus
		}
		return nil
	})
}

func parsePCIe(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, _ string) error {
		d := function(h, w[0])
		if d == nil {
			return nil
		}
		for i := 1; i+1 < len(w); i += 2 {
			var err error
			switch w[i] {
			case "relaxed-ordering":
				d.RelaxedOrdering, err = parseYesNo(w[i+1])
			case "max-payload":
				d.MaxPayload, err = parseBytes(w[i+1])
			case "max-read-request":
				d.MaxReadRequest, err = parseBytes(w[i+1])
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", w[0], w[i], err)
			}
		}
		return nil
	})
}

func parseBytes(s string) (*int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("want a number of bytes, got %q", s)
	}
	return &n, nil
}

func parseKernelLog(text []byte, h *topology.Host) []string {
	h.KernelLog = &topology.KernelLog{}
	return eachLine(text, func(w []string, line string) error {
		if len(w) < 2 || w[0] != "uptime" && w[0] != "at" {
			return nil
		}
		n, err := strconv.ParseInt(w[1], 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%s: want seconds, got %q", w[0], w[1])
		}
		if w[0] == "uptime" {
			h.KernelLog.Uptime = n
			return nil
		}
		h.KernelLog.Lines = append(h.KernelLog.Lines, topology.KernelLine{At: n, Text: after(line, 2)})
		return nil
	})
}
