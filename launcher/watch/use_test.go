package watch

import (
	"strings"
	"testing"
	"time"
)

func TestUseWatch(t *testing.T) {
	type part struct {
		looks    int // ten seconds apart
		gpu, cpu float64
	}
	for _, c := range []struct {
		name  string
		parts []part
		want  string // "": nothing is told
	}{
		{"steady", []part{{60, 0.9, 0.1}}, ""},
		{"gpus fall and cpus rise", []part{{30, 0.92, 0.1}, {30, 0.35, 0.5}}, "instead of 92 %"},
		{"a checkpoint of a minute", []part{{30, 0.92, 0.1}, {6, 0.1, 0.4}, {30, 0.92, 0.1}}, ""},
		{"gpus idle, and so are the cpus", []part{{30, 0.92, 0.1}, {60, 0.05, 0.05}}, ""},
		{"the start is not the norm", []part{{20, 0.05, 0.6}, {60, 0.9, 0.1}}, ""},
		{"cpus rise alone", []part{{30, 0.9, 0.1}, {30, 0.85, 0.7}}, ""},
		{"too short a job", []part{{5, 0.9, 0.1}, {5, 0.1, 0.9}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var u UseWatch
			at := time.Unix(1000, 0)
			var told []string
			for _, p := range c.parts {
				for range p.looks {
					at = at.Add(10 * time.Second)
					gpu, cpu := p.gpu, p.cpu
					if e, ok := u.Add(Sample{Time: at, Host: "n1", GPUUse: &gpu, CPUUse: &cpu}); ok {
						told = append(told, e.Text)
					}
					if _, ok := u.Add(Sample{Time: at, Host: "n2", CPUUse: &cpu}); ok {
						t.Error("told of a node without GPUs")
					}
				}
			}
			if len(told) > 1 || (len(told) == 1) != (c.want != "") || len(told) == 1 && !strings.Contains(told[0], c.want) {
				t.Errorf("told %q, want %q", told, c.want)
			}
		})
	}
}
