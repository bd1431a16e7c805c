//go:build !race

package throttr_test

const allowedAllocs = 0.0

const raceDetector = false
