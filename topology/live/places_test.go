package live

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/topology"
)

// TestLibrariesAsTheLoaderDoes: ldd asks the real loader. It names files after
// links where we do not, so directories are compared without them.
func TestLibrariesAsTheLoaderDoes(t *testing.T) {
	tried := 0
	for _, program := range []string{"/bin/ls", "/usr/bin/ssh", "/usr/bin/mpirun", "/usr/bin/srun", "/usr/bin/python3", "/usr/sbin/sshd", "/usr/bin/gcc"} {
		out, err := exec.Command("ldd", program).Output()
		if err != nil {
			continue
		}
		tried++
		want := map[string]string{}
		for line := range strings.Lines(string(out)) {
			// "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x…)"; the loader itself and the vDSO have no arrow
			if name, rest, ok := strings.Cut(line, " => "); ok {
				if file, _, ok := strings.Cut(rest, " ("); ok {
					want[strings.TrimSpace(name)] = strings.TrimPrefix(file, "/usr")
				}
			}
		}
		got := map[string]string{}
		for _, p := range Places(os.DirFS("/"), nil, []Asked{{topology.RoleProgram, program}}, "") {
			switch p.Role {
			case topology.RoleProgram:
				if p.Missing != "" || p.ID == "" {
					t.Errorf("%s: %+v", program, p)
				}
			case topology.RoleLibrary:
				if p.ID == "" {
					t.Errorf("%s: %s has no identity", program, p.Path)
				}
				if !strings.HasPrefix(p.Detail, "ld-linux") {
					got[p.Detail] = strings.TrimPrefix(p.Path, "/usr")
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -ldd +ours\n%s", program, diff)
		}
	}
	if tried == 0 {
		t.Skip("no ldd here")
	}
}

func TestPlaces(t *testing.T) {
	files := tree("work/case/x", "", "opt/run.sh", "#!/bin/bash -e\n", "opt/plain", "text", "proc/self/mountinfo",
		"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:40 / /work\\040x rw shared:1 - nfs4 nas:/x rw\n3 1 0:41 / /work rw - nfs4 nas:/work rw\n4 1 0:42 / /worked rw - xfs /dev/sdb rw\n")
	files["opt/run.sh"].Mode = 0o755
	files["opt/plain"].Mode = 0o644
	for _, tc := range []struct {
		role, path string
		want       topology.Place
	}{
		{topology.RoleDirectory, "/work/case", topology.Place{Role: "directory", Path: "/work/case", Mount: "nfs4 nas:/work"}},
		{topology.RoleDirectory, "/work/none", topology.Place{Role: "directory", Path: "/work/none", Missing: "ENOENT"}},
		{topology.RoleDirectory, "/opt/plain", topology.Place{Role: "directory", Path: "/opt/plain", Missing: "ENOTDIR"}},
		{topology.RoleProgram, "run.sh", topology.Place{Role: "program", Path: "/opt/run.sh", ID: "sha256:9ea07ee2a8e4b1c5ac9d", Mount: "ext4", Detail: "script of /bin/bash"}},
		{topology.RoleProgram, "plain", topology.Place{Role: "program", Path: "plain", Missing: "EACCES"}},
		{topology.RoleProgram, "/opt", topology.Place{Role: "program", Path: "/opt", Missing: "EISDIR"}},
		{topology.RoleProgram, "/../../none", topology.Place{Role: "program", Path: "/../../none", Missing: "ENOENT"}},
	} {
		got := Places(files, []string{"PATH=/bin:/opt"}, []Asked{{tc.role, tc.path}}, "")
		if len(got) != 1 {
			t.Fatalf("%s: %+v", tc.path, got)
		}
		if tc.want.ID != "" && got[0].ID != "" {
			tc.want.ID = got[0].ID // that there is one; which one is sha256's business
		}
		if diff := cmp.Diff(tc.want, got[0]); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.path, diff)
		}
	}
}

// loaderCache is a cache of one entry, alone or behind the old format.
func loaderCache(old bool, key, value string) []byte {
	var b bytes.Buffer
	if old {
		b.WriteString(cacheMagicOld)
		_ = binary.Write(&b, binary.NativeEndian, uint32(1))
		b.Write(make([]byte, 12+4)) // one old entry, and padding to a multiple of 8
	}
	start := b.Len()
	b.WriteString(cacheMagicNew)
	_ = binary.Write(&b, binary.NativeEndian, [7]uint32{1, 0})
	at := uint32(cacheHead + cacheEntry)
	_ = binary.Write(&b, binary.NativeEndian, struct {
		Flags      int32
		Key, Value uint32
		OS         uint32
		HW         uint64
	}{0x0303, at, at + uint32(len(key)) + 1, 0, 0})
	b.WriteString(key + "\x00" + value + "\x00")
	_ = start
	return b.Bytes()
}

func TestLoaderCache(t *testing.T) {
	for _, old := range []bool{false, true} {
		got := readLoaderCache(loaderCache(old, "libx.so.1", "/usr/lib/libx.so.1"))
		if !slices.Equal(got["libx.so.1"], []string{"/usr/lib/libx.so.1"}) {
			t.Errorf("old %v: %v", old, got)
		}
	}
	if text, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		if got := readLoaderCache(text); len(got["libc.so.6"]) == 0 {
			t.Errorf("the machine's own cache: %d entries, no libc", len(got))
		}
	}
}

func FuzzLoaderCache(f *testing.F) {
	f.Add(loaderCache(false, "a", "/b"))
	f.Add(loaderCache(true, "a", "/b"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for k, vs := range readLoaderCache(text) {
			if k == "" || len(vs) == 0 || vs[0][0] != '/' {
				t.Errorf("%q: %q", k, vs)
			}
		}
	})
}
