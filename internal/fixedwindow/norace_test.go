//go:build !race

package fixedwindow

const raceDetector = false
