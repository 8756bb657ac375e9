package live

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fabrun/topology"
	"fabrun/topology/discover"
)

// A snapshot of this machine is this machine: it reads as the same Host, and a
// snapshot of the snapshot is the same bytes.
func TestLiveSnapshotReplays(t *testing.T) {
	fsys := FS(context.Background(), Everything(os.Environ(), ""))
	want, err := discover.Read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := discover.Capture(fsys, &first); err != nil {
		t.Fatal(err)
	}
	snap, err := discover.ReadSnapshot(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := discover.Read(snap)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, topology.Route{}, topology.RouteRule{})); diff != "" {
		t.Errorf("the snapshot is another machine: -live +replayed\n%s", diff)
	}
	if err := discover.Capture(snap, &second); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.String(), second.String()); diff != "" {
		t.Errorf("a snapshot of the snapshot differs: -first +second\n%s", diff)
	}
}
