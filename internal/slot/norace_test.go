//go:build !race

package slot

const raceDetector = false
