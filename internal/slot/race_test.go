//go:build race

package slot

const raceDetector = true
