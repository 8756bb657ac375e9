package profiles

import "testing"

func TestOlderFirmware(t *testing.T) {
	for _, tc := range []struct {
		have, least string
		want        bool
	}{
		{"28.38.1002", "28.39.1002", true},
		{"28.39.1002", "28.39.1002", false},
		{"28.40.1000", "28.39.2048", false},
		{"28.39.2048", "28.39", false},
		{"28.39", "28.39.1", true},
		{"28.39", "28.39.0", false},
		{"9.1.0", "28.0.0", true},
		{"", "28.39.1002", false},
		{"unknown", "28.39.1002", false},
	} {
		if got := OlderFirmware(tc.have, tc.least); got != tc.want {
			t.Errorf("%q, least %q: %v", tc.have, tc.least, got)
		}
	}
}
