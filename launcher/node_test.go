package launcher

import (
	"bufio"
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/plan"
)

func TestNodeJob(t *testing.T) {
	for _, j := range []NodeJob{
		{Argv: []string{"torchrun"}},
		{
			Argv: []string{"torchrun", "", "two\nlines"}, Dir: "/a b", Mark: "12ab",
			Carry: plan.Carry{Take: []string{"DISPLAY"}, Leave: []string{"A*", "B"}},
			Env:   []string{"A=", "B=\xff\n\x01=", "BASH_FUNC_f%%=() {  echo;\n}", "LONG=" + strings.Repeat("x", 1<<20)},
		},
	} {
		var b bytes.Buffer
		if _, err := j.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if err := SendSignal(&b, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		b.WriteString("of a later version\nsignal x\nsignal 0\nsignal 900\n")
		if err := SendSignal(&b, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(&b)
		got, err := ReadNodeJob(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range []*[]string{&got.Env, &got.Carry.Take, &got.Carry.Leave} {
			if len(*list) == 0 {
				*list = nil
			}
		}
		if diff := cmp.Diff(j, got); diff != "" {
			t.Errorf("-sent +read\n%s", diff)
		}
		var orders []syscall.Signal
		Orders(r, func(s syscall.Signal) { orders = append(orders, s) })
		if diff := cmp.Diff([]syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, orders); diff != "" {
			t.Errorf("orders: -want +got\n%s", diff)
		}
	}
}

func TestNodeJobBroken(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "EOF"},
		{"hello\n", "no job of this fabrun"},
		{strings.Repeat("x", 500), "is no order"},
		{"fabrun-node 1 9 1 0 0 0\n\x00\x00", "unexpected EOF"},
		{"fabrun-node 1 2 1 0 0 0\n\x00\x00", "2 strings where 3 were announced"},
		{"fabrun-node 1 2 0 0 0 0\n\x00\x00", "no program"},
		{"fabrun-node 1 3 0 0 0 0\n\x00\x00x", "announced"},
		{"fabrun-node 1 -1 1 0 0 0\n", "no number"},
		{"fabrun-node 1 99999999999 1 0 0 0\n", "no number"},
	} {
		_, err := ReadNodeJob(bufio.NewReader(strings.NewReader(c.text)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want one that says %q", c.text, err, c.want)
		}
	}
}

func FuzzReadNodeJob(f *testing.F) {
	f.Add([]byte("fabrun-node 1 8 1 0 0 1\n\x00\x00a\x00B=c\x00signal 15\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReader(bytes.NewReader(text))
		j, err := ReadNodeJob(r)
		if err != nil {
			return
		}
		Orders(r, func(syscall.Signal) {})
		var b bytes.Buffer
		if _, err := j.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		again, err := ReadNodeJob(bufio.NewReader(&b))
		if err != nil {
			t.Fatalf("%v, of what was written for %q", err, text)
		}
		if diff := cmp.Diff(j, again); diff != "" {
			t.Errorf("-first +second\n%s", diff)
		}
	})
}
