//go:build race

package fixedwindow

// raceDetector reports whether the race detector is on. With it, a sync.Pool loses elements.
const raceDetector = true
