//go:build race

package throttr_test

// Under the race detector a sync.Pool lets go of one in four, on purpose.
const allowedAllocs = 4.0
