// Package valuesize compares the value sizes of servers: 1, 2, 4 and 8 bytes.
package valuesize

import "math"

// Max returns the largest value that fits in size bytes.
func Max(size int) uint64 { return math.MaxUint64 >> (64 - 8*size) }

// Smallest returns the smallest value size in bytes for which fits returns true, and 0 if there is
// none. It gives fits the largest value of each size.
func Smallest(fits func(maxValue uint64) bool) int {
	for size := 1; size <= 8; size *= 2 {
		if fits(Max(size)) {
			return size
		}
	}
	return 0
}
