package redisbackend_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// noError fails the test if there is an error.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expect fails the test if ok is false.
func expect(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// must makes a call that must succeed.
func must[R any](t testing.TB, f func(context.Context, string, window.Limit, uint64) (R, error), key string, l window.Limit, n uint64) R {
	t.Helper()
	r, err := f(t.Context(), key, l, n)
	noError(t, err)
	return r
}

// errorOf returns the error of a call.
func errorOf[R any](_ R, err error) error { return err }

func mustDelete(t testing.TB, b *rediswindow.Backend, key string, scales ...time.Duration) int {
	t.Helper()
	n, err := b.Delete(t.Context(), key, scales...)
	noError(t, err)
	return n
}

// set sets a clock, which may go back.
func set(clock backendtest.Clock, now time.Time) { clock.Advance(now.Sub(clock.Now())) }

// untilExpiry returns what a key of a server has left to live, less the grace of backends that have a
// clock of their own. It is negative if there is no such key.
func untilExpiry(t *testing.T, client rueidis.Client, name string) time.Duration {
	t.Helper()
	ms, err := redis(t, client, "PTTL", name).AsInt64()
	noError(t, err)
	if ms < 0 {
		return time.Duration(ms)
	}
	return time.Duration(ms)*time.Millisecond - grace
}

// limitOf returns a limit without a name.
func limitOf(a window.Algorithm, scale time.Duration, limit uint64) window.Limit {
	return window.Limit{Max: limit, Scale: scale, Algorithm: a}
}
