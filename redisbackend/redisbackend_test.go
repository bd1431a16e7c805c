package redisbackend_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

//evidence:redis The conformance suite passes
func TestConformance(t *testing.T) {
	s := startServer(t)
	conformance(t, s.connect(), s.connect())
}

//evidence:redis The conformance suite passes without coalescing
func TestConformanceWithoutCoalescing(t *testing.T) {
	algorithms := []window.Algorithm{window.PerKey, window.Aligned} // the others do not coalesce
	s := startServer(t)
	conformanceOf(t, s.connect(), s.connect(), algorithms, redisbackend.WithoutCoalescing())
}

// conformance runs the suite on one server, for all algorithms.
func conformance(t *testing.T, client, second rueidis.Client) {
	conformanceOf(t, client, second, []window.Algorithm{window.PerKey, window.Aligned, window.TokenBucket, window.Sliding, window.SlidingLog})
}

// conformanceOf runs the suite with two clients of one server. Each test has a prefix of its own.
func conformanceOf(t *testing.T, client, second rueidis.Client, algorithms []window.Algorithm, opts ...redisbackend.Option) {
	for _, a := range algorithms {
		most, exact := uint64(redisbackend.MaxCount), time.Duration(0)
		if a == window.SlidingLog {
			most = redisbackend.DefaultMaxLog
		}
		if a.Rolling() {
			exact = time.Microsecond // the resolution of time in Redis
		}
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				clock := backendtest.NewClock()
				opts := append([]redisbackend.Option{redisbackend.WithPrefix(t.Name() + ":"),
					redisbackend.WithClock(clock.Now), redisbackend.WithAlgorithm(a)}, opts...)
				return backendtest.Subject{
					Backend: redisbackend.New(client, opts...), Second: redisbackend.New(second, opts...), Clock: clock, Algorithm: a,
					MaxCount: most, Exact: exact, MayLose: a == window.TokenBucket, RoundsTokens: true,
				}
			})
		})
	}
}
