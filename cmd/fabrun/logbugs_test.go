package main

import (
	"strings"
	"testing"

	"fabrun/launcher/watch"
)

func TestBugsOfLog(t *testing.T) {
	rails := []string{"mlx5_0:1/RoCE", "mlx5_1:1/RoCE"}
	for _, c := range []struct {
		name string
		v    watch.Verdict
		want string // a piece of the source's address; "" nothing
	}{
		{"two RoCE rails", watch.Verdict{Library: "nccl", Version: "2.30.4", Devices: rails}, "nccl/issues/2334"},
		{"one", watch.Verdict{Library: "nccl", Version: "2.30.4", Devices: rails[:1]}, ""},
		{"InfiniBand", watch.Verdict{Library: "nccl", Version: "2.30.4", Devices: []string{"mlx5_0:1/IB", "mlx5_1:1/IB"}}, ""},
		{"of another library", watch.Verdict{Library: "rccl", Version: "2.30.4", Devices: rails}, ""},
		{"no version", watch.Verdict{Library: "nccl", Devices: rails}, ""},
		{"asks for what no log shows", watch.Verdict{Library: "nccl", Version: "2.29.2", Devices: rails[:1]}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			for _, e := range bugsOfLog(c.v) {
				got += e.Text
			}
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("says %q, want %q", got, c.want)
			}
		})
	}
}
