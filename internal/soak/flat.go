package main

import (
	"fmt"
	"slices"
)

// What may be added from the second third of the time to the last, beyond a tenth, for
// what comes and goes, and for what takes some minutes to fill up. A leak of 200 bytes per call
// shows within 20 s all the same.
const (
	heapSlack      = 12 << 20
	goroutineSlack = 64
)

// flat returns an error if memory or goroutines have grown: if their median in the last
// third of the samples is more than a tenth above that in the second. The first third is for
// what fills up.
func flat(samples []sample) error {
	third := len(samples) / 3
	if third == 0 {
		return fmt.Errorf("%d samples are too few: at least 3", len(samples))
	}
	middle, last := samples[third:2*third], samples[2*third:]
	for _, what := range []struct {
		name  string
		value func(sample) uint64
		slack uint64
	}{
		{"bytes of memory", func(s sample) uint64 { return s.heap }, heapSlack},
		{"goroutines", func(s sample) uint64 { return s.goroutines }, goroutineSlack},
	} {
		was, is := median(middle, what.value), median(last, what.value)
		if is > was+was/10+what.slack {
			return fmt.Errorf("not flat: from %d %s to %d", was, what.name, is)
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
