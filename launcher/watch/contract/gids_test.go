package contract

import (
	"slices"
	"strings"
	"testing"

	"fabrun/launcher/watch"
)

// drop takes the GIDs of an address from a port's table.
func drop(p *watch.PortSample, gid string) {
	p.GIDs = slices.DeleteFunc(slices.Clone(p.GIDs), func(g watch.GID) bool { return g.GID == gid })
}

func TestGIDs(t *testing.T) {
	pinned := []Pin{{Name: "NCCL_IB_GID_INDEX", Index: 3}, {Name: "UCX_IB_GID_INDEX", Index: 3}}
	const addr = "::ffff:10.0.0.2"
	for _, c := range []struct {
		name string
		pins []Pin
		run  func(b *job, p *watch.PortSample)
		said string
		text string // of the first
	}{
		{
			"a pinned index falls empty and is filled again", pinned, func(b *job, p *watch.PortSample) {
				all := p.GIDs
				drop(p, addr)
				b.look(at(130))
				b.look(at(140))
				p.GIDs = all
				b.look(at(190))
			}, "gid-stale gid-back",
			"GID index 3 of mlx5_0:1 was 10.0.0.2 (RoCE v2) and is empty now: NCCL_IB_GID_INDEX=3 and UCX_IB_GID_INDEX=3 are wrong on this node from here on, and connections that run stand on an address that the node does not have. Put 10.0.0.2 back on eth0.",
		},
		{
			"a pinned index has another address now", pinned[:1], func(b *job, p *watch.PortSample) {
				drop(p, addr)
				p.GIDs = append(p.GIDs, watch.GID{Index: 3, GID: "::ffff:10.0.0.77", Type: "RoCE v2"})
				b.look(at(10))
			}, "gid-stale", "was 10.0.0.2 (RoCE v2) and is 10.0.0.77 now: NCCL_IB_GID_INDEX=3 is wrong",
		},
		{
			"a pinned GID moves", pinned[:1], func(b *job, p *watch.PortSample) {
				drop(p, addr)
				p.GIDs = append(p.GIDs, watch.GID{Index: 5, GID: addr, Type: "RoCE v2"})
				b.look(at(10))
			}, "gid-stale", "is empty now (10.0.0.2 is at index 5): NCCL_IB_GID_INDEX=3 is wrong on this node from here on; new connections fail",
		},
		{
			"a GID moves and nothing is pinned", nil, func(b *job, p *watch.PortSample) {
				drop(p, addr)
				p.GIDs = append(p.GIDs, watch.GID{Index: 5, GID: addr, Type: "RoCE v2"})
				b.look(at(10))
			}, "", "",
		},
		{
			"the address of the job's connections goes, and nothing is pinned", nil, func(b *job, p *watch.PortSample) {
				drop(p, addr)
				b.look(at(10))
			}, "gid-stale", "connections of the job that run over this port stand on an address that the node does not have, and new ones take another. Put 10.0.0.2 back on eth0.",
		},
		{
			"another address comes", pinned, func(b *job, p *watch.PortSample) {
				p.GIDs = append(p.GIDs, watch.GID{Index: 4, GID: "::ffff:10.0.0.99", Type: "IB/RoCE v1"}, watch.GID{Index: 5, GID: "::ffff:10.0.0.99", Type: "RoCE v2"})
				b.look(at(10))
			}, "", "",
		},
		{
			"another address goes", pinned, func(b *job, p *watch.PortSample) {
				drop(p, "fe80::1")
				b.look(at(10))
			}, "", "",
		},
		{
			"the same table again", pinned, func(b *job, p *watch.PortSample) {
				b.look(at(10))
				b.look(at(20))
			}, "", "",
		},
		{
			"the table is not read", pinned, func(b *job, p *watch.PortSample) {
				p.GIDs = nil
				b.look(at(10))
			}, "", "",
		},
		{
			"a variable names another GID than the plan's choice, which goes", []Pin{{Name: "UCX_IB_GID_INDEX", Index: 0}}, func(b *job, p *watch.PortSample) {
				drop(p, addr)
				b.look(at(10))
			}, "", "",
		},
		{
			"the pin is of another host", []Pin{{Name: "NCCL_IB_GID_INDEX", Index: 0, Host: "node01"}}, func(b *job, p *watch.PortSample) {
				drop(p, "fe80::1")
				b.look(at(10))
			}, "", "",
		},
		{
			"an interface that is shut down loses its addresses: the rail is lost, and that is all", pinned, func(b *job, p *watch.PortSample) {
				all := p.GIDs
				p.Active, p.State = false, "DOWN"
				drop(p, addr)
				b.look(at(10))
				p.Active, p.GIDs = true, all
				b.look(at(20))
			}, "rail-lost rail-back", "",
		},
		{
			"after a flap the index is stale", pinned[:1], func(b *job, p *watch.PortSample) {
				p.Active = false
				b.look(at(10))
				p.Active = true
				drop(p, addr)
				p.GIDs = append(p.GIDs, watch.GID{Index: 4, GID: addr, Type: "IB/RoCE v1"}, watch.GID{Index: 5, GID: addr, Type: "RoCE v2"})
				b.look(at(20))
			}, "rail-lost gid-stale rail-back", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newJob(2, 2, c.pins...)
			b.look(at(0))
			c.run(b, b.port("node02", 0))
			if b.ids() != c.said {
				t.Fatalf("said %q, want %q: %+v", b.ids(), c.said, b.said)
			}
			if c.text != "" && !strings.Contains(b.said[0].Text, c.text) {
				t.Errorf("got  %s\nwant %s", b.said[0].Text, c.text)
			}
			if k := b.j.Kept(false, 0); strings.Contains(c.said, "gid-stale") != (len(k.GIDs) == 1) {
				t.Errorf("kept: %+v", k)
			}
		})
	}
}
