package testkit

import (
	"testing"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/rediswindow"
)

// Conform runs the conformance suite for all algorithms. The function returns two backends on one store, with
// clients of their own. Each test has a prefix of its own.
func Conform(t *testing.T, backends func(opts ...rediswindow.Option) (one, second *rediswindow.Backend)) {
	for _, a := range limits.Algorithms {
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				clock := backendtest.NewClock()
				s := backendtest.Subject{Algorithm: a, Clock: clock}
				s.Backend, s.Second = backends(rediswindow.WithPrefix(t.Name()+":"), rediswindow.WithClock(clock.Now))
				return s
			})
		})
	}
}
