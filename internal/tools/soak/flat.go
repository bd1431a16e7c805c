package main

import (
	"fmt"
	"slices"
)

// Growth beyond a tenth that is not an error. Memory and goroutines vary, and some buffers take
// minutes to fill. A leak of 2.5 MiB/s still exceeds it within 20 s.
const (
	heapTolerance      = 12 << 20
	goroutineTolerance = 64
)

// flat returns an error if memory or goroutines have grown: if their median in the last third
// of the samples is more than a tenth above that in the second third. In the first third,
// buffers fill up.
func flat(samples []sample) error {
	third := len(samples) / 3
	if third == 0 {
		return fmt.Errorf("%d samples are too few: at least 3", len(samples))
	}
	middle, last := samples[third:2*third], samples[2*third:]
	for _, what := range []struct {
		name      string
		value     func(sample) uint64
		tolerance uint64
	}{
		{"bytes of memory", func(s sample) uint64 { return s.heap }, heapTolerance},
		{"goroutines", func(s sample) uint64 { return s.goroutines }, goroutineTolerance},
	} {
		before, after := median(middle, what.value), median(last, what.value)
		if after > before+before/10+what.tolerance {
			return fmt.Errorf("%s grew from %d to %d", what.name, before, after)
		}
	}
	return nil
}

func median(samples []sample, value func(sample) uint64) uint64 {
	values := make([]uint64, len(samples))
	for i, s := range samples {
		values[i] = value(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
