package testkit

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// Conform runs the conformance suite for all algorithms. The function returns two backends on one store, with
// clients of their own. Each test has a prefix of its own.
func Conform(t *testing.T, backends func(opts ...rediswindow.Option) (one, second *rediswindow.Backend)) {
	for _, a := range limits.Algorithms {
		subject := backendtest.Subject{Algorithm: a, MaxCount: rediswindow.MaxCount, MayLose: a == window.TokenBucket, RoundsTokens: true}
		if a == window.SlidingLog {
			subject.MaxCount = rediswindow.DefaultMaxLog
		}
		if a.Rolling() {
			subject.Precision = time.Microsecond // the resolution of time in Redis
		}
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				s, clock := subject, backendtest.NewClock()
				s.Clock = clock
				s.Backend, s.Second = backends(rediswindow.WithPrefix(t.Name()+":"), rediswindow.WithClock(clock.Now))
				return s
			})
		})
	}
}
