//go:build !race

package coalesce_test

import (
	"context"
	"testing"
)

// The race detector makes pools drop what they are given.
func TestHitOfCombinerDoesNotAllocate(t *testing.T) {
	a := adder{noWait: true}
	c := a.combiner(1)
	if n := testing.AllocsPerRun(1000, func() { add(context.Background(), c, "a", 1) }); n >= 1 {
		t.Errorf("a hit makes %v allocations", n)
	}
}
