package profiles

import "testing"

func TestBuiltinsLoad(t *testing.T) {
	for _, i := range List(nil) {
		if i.Err != nil {
			t.Errorf("%s: %v", i.Name, i.Err)
		}
		if i.About == "" {
			t.Errorf("%s: no about", i.Name)
		}
	}
	for _, i := range ListWorkloads(nil) {
		if i.Err != nil || i.About == "" {
			t.Errorf("%s: %v", i.Name, i.Err)
		}
	}
	p, err := Load(nil, "roce-dscp31")
	if err != nil {
		t.Fatal(err)
	}
	if tc := p.Fabric.QoS.RDMA.TC(); tc != 124 {
		t.Errorf("TC %d, want 124", tc)
	}
}
