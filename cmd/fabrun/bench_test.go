package main

import (
	"bytes"
	"context"
	"testing"
)

// BenchmarkPlan is fabrun plan on the 8-GPU, 10-HCA snapshot, without the
// process's start.
func BenchmarkPlan(b *testing.B) {
	for b.Loop() {
		var out, errs bytes.Buffer
		args := []string{"fabrun", "plan", "--from", "../../testdata/hosts/dgx-roce-8x8.snap", "--profile", "roce-dscp26", "--", "torchrun", "train.py"}
		if code := run(context.Background(), args, nil, nil, &out, &errs); code != 0 {
			b.Fatalf("status %d: %s", code, errs.String())
		}
	}
}
