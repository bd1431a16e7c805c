//go:build !race

package sweep

const race = false // the race detector is on
