package watch

import (
	"strings"
	"testing"
)

// The fallback becomes certain by the line of one host, and its cause stands in
// that of another: the second is the one to look at.
func TestFallbackNamesTheHostOfTheCause(t *testing.T) {
	v := mustScan(t, strings.Join([]string{
		"n1:100:100 [0] NCCL INFO NET/IB : Unable to open device mlx5_0",
		"n1:100:100 [0] NCCL INFO NET/IB : No device found.",
		"n2:200:200 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>",
		"n2:200:200 [0] NCCL INFO Using network Socket",
		"n2:200:201 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0",
	}, "\n"))
	for _, e := range v.Events {
		if e.ID == "fallback" {
			if e.Host != "n1" || !strings.HasPrefix(e.Line, "n1:") {
				t.Fatalf("host %q, line %q", e.Host, e.Line)
			}
			return
		}
	}
	t.Fatal("no fallback")
}
