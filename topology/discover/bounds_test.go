package discover

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// TestDevicesAreBounded: a tree with more devices than a machine has is refused by
// their number, before they are compared with each other.
func TestDevicesAreBounded(t *testing.T) {
	tree := fstest.MapFS{}
	for i := range maxHCAs + 1 {
		tree[fmt.Sprintf("sys/class/infiniband/mlx5_%d/node_guid", i)] = &fstest.MapFile{Data: []byte("0\n")}
	}
	if _, err := Read(tree); err == nil || !strings.Contains(err.Error(), "4097 RDMA devices") {
		t.Errorf("got %v", err)
	}
}
