package vars

import "testing"

func TestNearest(t *testing.T) {
	for name, want := range map[string]string{
		"NCCL_IB_GID_IDX": "NCCL_IB_GID_INDEX", "NCCL_IB_HCAS": "NCCL_IB_HCA", "NCCL_SOCKET_IF_NAME": "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAMES": "NCCL_SOCKET_IFNAME",
		"UCX_NET_DEVICE": "UCX_NET_DEVICES", "UCX_NETDEVICES": "UCX_NET_DEVICES", "UCX_IB_GID_IDX": "UCX_IB_GID_INDEX", "UCX_IB_TRAFIC_CLASS": "UCX_IB_TRAFFIC_CLASS",
		"nccl_ib_hca": "NCCL_IB_HCA", "NCCL_NET_GDR_LVL": "NCCL_NET_GDR_LEVEL",
		"NCCL_IB_HAC": "NCCL_IB_HCA", "NCCL_SOKCET_IFNAME": "NCCL_SOCKET_IFNAME",
		// real names that the table does not have
		"NCCL_FOO_ENABLE": "", "NCCL_DEBUG_SUBSYSTEM": "", "NCCL_IB_NEW_KNOB": "",
		"UCX_UD_TIMEOUT": "", "UCX_DC_TIMEOUT": "", "UCX_TCP_MAX_NUM_EPS": "", "UCX_RC_MLX5_TM_ENABLE": "", "UCX_RC_MAX_RD_ATOMIC": "", "NCCL_NEW_THING": "", "UCX_SM_RETRY_COUNT": "",
		"UCX_CUDA_COPY_MAX_REG_RATIO": "", "UCX_UD_TX_QUEUE_LEN": "", "UCX_IB_TX_QUEUE_LEN": "", "": "", "NCCL_": "", "_": "",
	} {
		got, ok := Nearest(name)
		if got.Name != want || ok != (want != "") {
			t.Errorf("Nearest(%q) = %q, want %q", name, got.Name, want)
		}
	}
}

func TestKnownIsSorted(t *testing.T) {
	for i := range variables[1:] {
		if variables[i].Name >= variables[i+1].Name {
			t.Errorf("%s and %s: out of order or twice", variables[i].Name, variables[i+1].Name)
		}
	}
	for _, v := range variables {
		if got, ok := Known(v.Name); !ok || got.Name != v.Name {
			t.Errorf("Known(%q) = %v, %v", v.Name, got, ok)
		}
	}
}

// Names that libraries read are no misspellings, documented or not.
func TestRealNamesAreKnown(t *testing.T) {
	for _, name := range []string{
		"NCCL_PAT_ENABLE", "NCCL_NVTX_DISABLE", "NCCL_GRAPH_MIXING_SUPPORT", "NCCL_IPC_USE_ABSTRACT_SOCKET", "NCCL_CHECK_MODE", "NCCL_LAUNCH_RACE_FATAL",
		"NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_GDRCOPY_FIFO_ENABLE", "NCCL_P2P_LL_THRESHOLD", "UCX_KEEPALIVE_INTERVAL", "UCX_TM_THRESH", "UCX_RNDV_FRAG_SIZE", "RCCL_MSCCL_ENABLE",
	} {
		if _, ok := Known(name); !ok {
			t.Errorf("%s is not known", name)
		}
		if v, ok := Nearest(name); ok {
			t.Errorf("%s is called a misspelling of %s", name, v.Name)
		}
	}
}
