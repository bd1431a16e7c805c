//go:build race

package sweep

const race = true // the race detector is on
