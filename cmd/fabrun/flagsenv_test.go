package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDockerTwice: what 'env --format docker' writes into a file for an image is
// what 'docker run' behind fabrun gets.
func TestDockerTwice(t *testing.T) {
	snaps, err := filepath.Glob("../../testdata/hosts/*.snap")
	if err != nil || len(snaps) < 20 {
		t.Fatal(snaps, err)
	}
	set := 0
	for _, snap := range snaps {
		for _, more := range [][]string{nil, {"--profile", "roce-dscp26"}, {"--strict"}, {"--nccl-version", "2.20.5"}} {
			said := func(args ...string) []byte {
				var out, errs bytes.Buffer
				run(context.Background(), slices.Concat([]string{"fabrun", args[0], "--from", snap}, more, args[1:]), nil, strings.NewReader(""), &out, &errs)
				return out.Bytes()
			}
			file := strings.Fields(strings.ReplaceAll(string(said("env", "--format", "docker")), " ", "\x00"))
			var p struct {
				Env []struct{ Name, Value string }
			}
			if err := json.Unmarshal(said("plan", "--json", "--", "docker", "run", "img", "./a.out"), &p); err != nil {
				t.Fatalf("%s: %v", snap, err)
			}
			planned := []string{}
			for _, v := range p.Env {
				if !strings.HasPrefix(v.Name, "FABRUN_") {
					planned = append(planned, v.Name+"="+strings.ReplaceAll(v.Value, " ", "\x00"))
				}
			}
			slices.Sort(file)
			slices.Sort(planned)
			if diff := cmp.Diff(planned, append([]string{}, file...)); diff != "" {
				t.Errorf("%s %q: docker run and env --format docker differ:\n%s", filepath.Base(snap), more, diff)
			}
			set += len(file)
		}
	}
	if set < 100 {
		t.Errorf("only %d variables were compared", set)
	}
}
