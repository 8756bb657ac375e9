package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// sharedFileSystems are those that several nodes see at once, by the number that
// statfs(2) gives (linux/magic.h, and each file system's own source). FUSE may be
// one (GlusterFS, sshfs, DAOS) and is taken for one.
var sharedFileSystems = map[int64]string{
	0x6969: "nfs", 0xFF534D42: "cifs", 0xFE534D42: "smb2", 0x517B: "smb", 0x0BD00BD0: "lustre", 0x47504653: "gpfs",
	0x19830326: "beegfs", 0x00C36400: "ceph", 0x01021997: "9p", 0xAAD7AAEA: "panfs", 0x20030528: "orangefs",
	0x5346414F: "afs", 0x7461636F: "ocfs2", 0x01161970: "gfs2", 0x65735546: "fuse",
}

// SharedLogs reports whether the files of a pattern lie on a file system that
// other nodes see too; known is false where its directory is not there.
func SharedLogs(pattern string) (shared, known bool) {
	dir := filepath.Dir(pattern)
	for strings.Contains(dir, "%") {
		dir = filepath.Dir(dir)
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return false, false
	}
	_, shared = sharedFileSystems[int64(st.Type)&0xffffffff]
	return shared, true
}

// OwnFile reports whether a file is the user's own: in a directory that others may
// write to, a name or pattern also matches what they put there.
func OwnFile(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}
