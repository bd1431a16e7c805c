//go:build race

// Package race reports whether the race detector is on.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
