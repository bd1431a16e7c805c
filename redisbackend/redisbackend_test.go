package redisbackend_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

//evidence:redis The conformance suite passes
func TestConformance(t *testing.T) {
	s := startServer(t)
	conformance(t, s.connect(), s.connect())
}

// conformance runs the suite with two clients of one server, for all algorithms. Each test has a prefix of
// its own.
func conformance(t *testing.T, client, second rueidis.Client) {
	for a := window.FixedWindow; a <= window.SlidingLog; a++ {
		most, exact := uint64(rediswindow.MaxCount), time.Duration(0)
		if a == window.SlidingLog {
			most = rediswindow.DefaultMaxLog
		}
		if a.Rolling() {
			exact = time.Microsecond // the resolution of time in Redis
		}
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				clock := backendtest.NewClock()
				opts := []rediswindow.Option{rediswindow.WithPrefix(t.Name() + ":"), rediswindow.WithClock(clock.Now)}
				return backendtest.Subject{
					Backend: redisbackend.New(client, opts...), Second: redisbackend.New(second, opts...), Clock: clock, Algorithm: a,
					MaxCount: most, Exact: exact, MayLose: a == window.TokenBucket, RoundsTokens: true,
				}
			})
		})
	}
}
