package eyes

import (
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"fabrun/launcher/watch"
)

// emptyRun is after how many empty entries a GID table is taken to have no more: the
// kernel fills the first empty one (drivers/infiniband/core/cache.c, find_gid).
const emptyRun = 64

// gidTable reads the GIDs of the port at dir; nil where they cannot be read. Empty
// entries read as zeros; their type and netdev cannot be read.
func gidTable(sys fs.FS, dir string) []watch.GID {
	out := []watch.GID{}
	empty := 0
	for i := 0; i < 4096 && empty < emptyRun; i++ {
		n := strconv.Itoa(i)
		b, err := fs.ReadFile(sys, path.Join(dir, "gids", n))
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			break
		}
		if err != nil {
			return nil
		}
		gid, err := netip.ParseAddr(strings.TrimSpace(string(b)))
		if err != nil || gid.IsUnspecified() {
			empty++
			continue
		}
		empty = 0
		out = append(out, watch.GID{
			Index: i, GID: gid.String(),
			Type:   sysText(sys, path.Join(dir, "gid_attrs/types", n)),
			Netdev: sysText(sys, path.Join(dir, "gid_attrs/ndevs", n)),
		})
	}
	return out
}
