package topology

import "testing"

func TestSharePartition(t *testing.T) {
	for _, tt := range []struct {
		name         string
		a, b         []uint16
		share, known bool
	}{
		{"full members of one", []uint16{0x8012}, []uint16{0x8012}, true, true},
		{"full and limited", []uint16{0xffff}, []uint16{0x7fff}, true, true},
		{"both limited", []uint16{0x7fff}, []uint16{0x7fff}, false, true},
		{"different", []uint16{0x8012}, []uint16{0x8013}, false, true},
		{"one of several", []uint16{0x7fff, 0x8012}, []uint16{0x7fff, 0x0012}, true, true},
		{"an empty entry is no partition", []uint16{0x8000, 0x8012}, []uint16{0x8000}, false, true},
		{"not known", nil, []uint16{0x8012}, false, false},
	} {
		share, known := SharePartition(Port{PKeys: tt.a}, Port{PKeys: tt.b})
		if share != tt.share || known != tt.known {
			t.Errorf("%s: %v %v, want %v %v", tt.name, share, known, tt.share, tt.known)
		}
	}
}
