package race

// Fewer returns n, or a fifth of it if the race detector is on. It is for tests of one goroutine, in which the race
// detector has nothing to find, and for many goroutines that do the same.
func Fewer(n int) int {
	if Enabled {
		return max(1, n/5)
	}
	return n
}
