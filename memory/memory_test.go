package memory_test

import (
	"testing"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func TestConformance(t *testing.T) {
	for _, a := range []window.Algorithm{window.PerKey, window.Aligned} {
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				clock := backendtest.NewClock()
				b := memory.New(memory.WithClock(clock.Now), memory.WithAlgorithm(a))
				t.Cleanup(func() { b.Close() })
				return backendtest.Subject{Backend: b, Clock: clock, Algorithm: a}
			})
		})
	}
}
