package live

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/safchain/ethtool"
)

// statWanted says whether a check reads this ethtool statistic: pause frames
// by priority (their names exist only where PFC is on) and in general, bytes by
// priority (which show in what class RDMA really went), loss,
// signal quality and what RDMA traffic of a VF or port leaves there (mlx5
// counters.rst; bnxt_en's and ionic's names beside them).
func statWanted(name string) bool {
	for _, p := range []string{"rx_prio", "tx_prio"} {
		if strings.HasPrefix(name, p) && (strings.Contains(name, "pause") || strings.Contains(name, "discard") || strings.HasSuffix(name, "_bytes")) {
			return true
		}
	}
	for _, p := range []string{"rx_global_pause", "tx_global_pause", "rx_pause_ctrl", "tx_pause_ctrl", "tx_pause_storm", "rx_pfc_ena_frames_pri", "tx_pfc_ena_frames_pri", "rx_bytes_pri", "tx_bytes_pri"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return slices.Contains([]string{
		"link_down_events_phy", "rx_discards_phy", "tx_discards_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy", "rx_corrected_bits_phy",
		"rx_out_of_buffer", "outbound_pci_stalled_wr", "outbound_pci_stalled_rd", "rx_vport_rdma_unicast_bytes", "tx_vport_rdma_unicast_bytes",
		"rx_crc_errors_phy", "rx_fcs_err_frames", "rx_roce_discards", "rx_bytes_phy", "tx_bytes_phy",
	}, name)
}

// ethtoolOf asks the driver of one netdev. An answer that a driver does not
// give is left out.
func ethtoolOf(ifname string, stats bool) ([]byte, error) {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return nil, err
	}
	defer e.Close()
	info, err := e.DriverInfo(ifname)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, f := range []struct{ key, value string }{{"driver", info.Driver}, {"version", info.Version}, {"firmware", info.FwVersion}, {"bus", info.BusInfo}} {
		if v := oneLine(f.value); v != "" {
			fmt.Fprintf(&b, "%s %s\n", f.key, v)
		}
	}
	if p, err := e.GetPause(ifname); err == nil {
		fmt.Fprintf(&b, "pause %s\n", onOff(p.RxPause != 0 || p.TxPause != 0))
	}
	if stats {
		if values, err := e.Stats(ifname); err == nil {
			for _, name := range slices.Sorted(maps.Keys(values)) {
				if v := values[name]; statWanted(name) && v <= math.MaxInt64 && !strings.ContainsAny(name, " \t\r\n") {
					fmt.Fprintf(&b, "stat %s %d\n", name, v)
				}
			}
		}
	}
	return []byte(b.String()), nil
}

// oneLine makes text of a device or file fit for one line of a section.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
}
