package api

import "math"

// MaxValue returns the largest value that fits in size bytes: 1, 2, 4 or 8.
func MaxValue(size int) uint64 { return math.MaxUint64 >> (64 - 8*size) }

// SmallestSize returns the smallest value size in bytes for which fits returns true, and 0 if there is
// none. It gives fits the largest value of each size.
func SmallestSize(fits func(maxValue uint64) bool) int {
	for size := 1; size <= 8; size *= 2 {
		if fits(MaxValue(size)) {
			return size
		}
	}
	return 0
}
