package backendtest_test

import (
	"testing"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/memory"
)

// Run tests a backend of your own.
func ExampleRun() {
	_ = func(t *testing.T) { // TestMyBackend
		for _, a := range limits.Algorithms {
			t.Run(a.String(), func(t *testing.T) {
				backendtest.Run(t, func(t *testing.T) backendtest.Subject {
					clock := backendtest.NewClock()
					return backendtest.Subject{Backend: memory.New(memory.WithClock(clock.Now)), Clock: clock, Algorithm: a}
				})
			})
		}
	}
}
