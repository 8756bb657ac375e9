package eyes

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKeptLogs(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside.log")
	k := newKeptLogs(filepath.Join(dir, "job.rec"))
	if where, err := k.close(); where != "" || err != nil {
		t.Errorf("nothing kept: %q %v", where, err)
	}
	k.add("", "nccl.n1.7.log", []byte("one\n"))
	k.add("", "nccl.n1.7.log", []byte("two\n"))
	k.add("n2", "nccl.n2.7.log", []byte("three\n"))
	for _, name := range []string{"../outside.log", "/etc/x.log", "hostfile", ".hidden.log", ""} {
		k.add("n2", name, []byte("no"))
	}
	k.add("../..", "up.log", []byte("four\n"))
	where, err := k.close()
	if err != nil || where != filepath.Join(dir, "job.rec.logs") {
		t.Fatalf("%q %v", where, err)
	}
	got := map[string]string{}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(where, path)
		got[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"nccl.n1.7.log": "one\ntwo\n", "node-n2/nccl.n2.7.log": "three\n", "node-.._../up.log": "four\n"}
	if len(got) != len(want) {
		t.Errorf("files %v, want %v", got, want)
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %q, want %q", name, got[name], text)
		}
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("a node's name for its log leads out of the directory")
	}
	// A second job under the same name begins anew.
	k = newKeptLogs(filepath.Join(dir, "job.rec"))
	k.add("", "nccl.n1.7.log", []byte("new\n"))
	if _, err := k.close(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(where, "nccl.n1.7.log")); err != nil || string(text) != "new\n" {
		t.Errorf("%q %v", text, err)
	}
}
