package vars

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestCarried(t *testing.T) {
	for name, want := range map[string]bool{
		"NCCL_IB_HCA": true, "NCCL_IB_PKEY": true, "UCC_TLS": true, "TORCH_NCCL_BLOCKING_WAIT": true, "OMP_PLACES": true, "LD_LIBRARY_PATH": true,
		"APPTAINERENV_NCCL_DEBUG": true, "SLURM_JOB_NODELIST_HET_GROUP_1": true, "PET_NNODES": true, "UCX_KEEPALIVE_INTERVAL": true,
		"HOME": false, "HF_TOKEN": false, "AWS_SECRET_ACCESS_KEY": false, "SSH_AUTH_SOCK": false, "NCCL_TOKEN": false, "PMIX_SERVER_URI41": false,
		"OMPI_MCA_orte_hnp_uri": false, "SLURM_JWT": false, "DISPLAY": false, "TORCH_API_KEY": false, "PBS_NODEFILE": false,
	} {
		if got := Carried(name); got != want {
			t.Errorf("Carried(%s) = %v", name, got)
		}
	}
}

func TestRedact(t *testing.T) {
	for _, c := range [][2]string{ // "" unchanged
		{"http://user:hunter2@proxy:3128/x", "http://<redacted>@proxy:3128/x"},
		{"https://ghcr.io/org/image:tag", ""},
		{"mlx5_0:1,mlx5_1:1", ""},
		{"=eth0:10.0.0.1", ""},
		{"id AKIAIOSFODNN7EXAMPLE end", "id <redacted> end"},
		{"hf_abcdefghijklmnopqrstuvwxyz", "<redacted>"},
		{"HF_TOKEN=abc next", "HF_TOKEN=<redacted> next"},
		{"export WANDB_API_KEY='a b c'", "export WANDB_API_KEY=<redacted>"},
		{"curl --token abc --retry 3", "curl --token <redacted> --retry 3"},
		{"--password=abc", "--password=<redacted>"},
		{"--password --other", ""},
		{"the key word of this sentence", ""},
		{"Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer <redacted>"},
		{"NCCL_IB_PKEY=1", ""},
		{"UCX_KEEPALIVE_INTERVAL=20s", ""},
		{"PWD=/home/x", ""},
		{"--sort-key-bits 3", "--sort-key-bits <redacted>"}, // rather too much
		{"sk-proj-abcdefghijklmnopqrstuvwxyz0123", "<redacted>"},
		{"a NCCL INFO comm 0x7f00 rank 0 nranks 16 cudaDev 0 busId 1b000", ""},
		{`{"HF_TOKEN=\"abc\""}`, ""},
	} {
		want := c[1]
		if want == "" {
			want = c[0]
		}
		if got := Redact(c[0]); got != want {
			t.Errorf("%q\ngot  %q\nwant %q", c[0], got, want)
		}
	}
}

func TestRedactWords(t *testing.T) {
	got := RedactWords([]string{
		"mpirun", "-x", "HF_TOKEN=abc", "-x", "NCCL_DEBUG=INFO", "--password", "abc", "--secret-file", "-n", "2",
		"sshpass", "-p", "abc", "ssh", "-p", "22", "n1", "http://u:abc@h/",
	})
	want := []string{
		"mpirun", "-x", "HF_TOKEN=<redacted>", "-x", "NCCL_DEBUG=INFO", "--password", Redacted, "--secret-file", "-n", "2",
		"sshpass", "-p", Redacted, "ssh", "-p", "22", "n1", "http://<redacted>@h/",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestRedactJSON(t *testing.T) {
	for _, c := range [][2]string{
		{`{"command":["mpirun","--password","a b","-x","HF_TOKEN=\"abc\""],"n":1}`, `{"command":["mpirun","--password","<redacted>","-x","HF_TOKEN=<redacted>"],"n":1}`},
		{`{"env":[{"name":"HF_TOKEN","value":"abc"},{"name":"NCCL_DEBUG","value":"INFO"}],"token":"x","url":"http://u:p@h"}`, `{"env":[{"name":"HF_TOKEN","value":"<redacted>"},{"name":"NCCL_DEBUG","value":"INFO"}],"token":"<redacted>","url":"http://<redacted>@h"}`},
		{`{"why": "plain \u003c text", "list": [1, "mlx5_0:1"], "none": null}`, ""},
	} {
		want := c[1]
		if want == "" {
			want = c[0]
		}
		if got := string(RedactJSON([]byte(c[0]))); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", c[0], got, want)
		}
	}
}

func FuzzRedactJSON(f *testing.F) {
	for _, s := range []string{`{"a":["--token","x"],"b":{"name":"KEY","value":"\""}}`, `["TOKEN=x"]`, `"`, `{"\":"\\"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got := RedactJSON(text); json.Valid(text) && !json.Valid(got) {
			t.Errorf("%s is no JSON any more: %s", text, got)
		}
	})
}

func FuzzRedact(f *testing.F) {
	for _, s := range []string{"http://u:p@h", "--password x", "TOKEN='a", "-----BEGIN PRIVATE KEY-----\nx", "eyJaaaaaaaaaa.bbbbbbbbbb.cc"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := Redact(s)
		if again := Redact(once); strings.Count(again, Redacted) < strings.Count(once, Redacted) {
			t.Errorf("%q: %q, then %q", s, once, again)
		}
		_ = RedactWords(strings.Fields(s))
	})
}
