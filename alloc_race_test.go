//go:build race

package throttr_test

// Under the race detector a sync.Pool lets go of one in four, on purpose.
const allowedAllocs = 4.0

// raceDetector makes what floods a bubble with timers smaller: a crowd of them can end in a
// failure of the race detector itself (https://go.dev/issue/78156).
const raceDetector = true
