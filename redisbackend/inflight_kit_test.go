package redisbackend_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// newInFlight returns a limiter on a backend, both of which end with the test.
func newInFlight(t testing.TB, b *rediswindow.Backend, opts ...inflight.Option) *inflight.Limiter {
	opts = append([]inflight.Option{inflight.WithLogger(nil), inflight.WithTimeout(10 * time.Second)}, opts...) // a busy machine
	l := inflight.New(b, opts...)
	t.Cleanup(func() {
		l.Close()
		b.Close()
	})
	return l
}

// twoStrict returns two limiters, as in processes of their own.
func twoStrict(t testing.TB, connect func() rueidis.Client) (one, two *inflight.Limiter) {
	one = newInFlight(t, redisbackend.New(connect()), inflight.WithStrict())
	two = newInFlight(t, redisbackend.New(connect()), inflight.WithStrict())
	return one, two
}

// acquired acquires places of a key, as soon as there are any.
func acquired(t testing.TB, l *inflight.Limiter, key string, limit inflight.Limit, n uint64) *inflight.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h, err := l.Acquire(ctx, key, limit, n)
	noError(t, err)
	return h
}

// neverTwo requires that nobody else gets the place of h, for up to half a lease. Then h is released, and somebody
// else gets it.
func neverTwo(t *testing.T, h *inflight.Hold, other *inflight.Limiter, limit inflight.Limit) {
	t.Helper()
	for begun := time.Now(); h.Valid() && time.Since(begun) < limit.Lease/2; time.Sleep(10 * time.Millisecond) {
		second, granted, _ := other.TryAcquire(context.Background(), "k", limit, 1) // its client may still look for the server
		expect(t, !granted || !h.Valid(), "two places of one are held")
		second.Release()
	}
	h.Release()
	acquired(t, other, "k", limit, 1).Release()
}

// notYet requires that an attempt to acquire a place has failed because there is none, or will be in a lease.
func notYet(t *testing.T, ok bool, err error, limit inflight.Limit) {
	t.Helper()
	var later *inflight.NotYetError
	expect(t, !ok && (err == nil || errors.As(err, &later) && later.RetryAfter <= limit.Lease), "%v, %v", ok, err)
}

// ownerOf returns which primary has the slot of the key "k".
func ownerOf(t *testing.T, c *testkit.Cluster) int {
	t.Helper()
	owner := slices.IndexFunc(c.Primaries, func(s *testkit.Redis) bool {
		_, err := s.Do("HLEN", "{k:k}")
		return err == nil // and not MOVED
	})
	expect(t, owner >= 0, "no primary has the slot")
	return owner
}

// exchange makes a claim, which must succeed.
func exchange(t testing.TB, b *rediswindow.Backend, c window.Claim) window.Places {
	t.Helper()
	places := make([]window.Places, 1)
	noError(t, b.Exchange(context.Background(), []window.Claim{c}, places))
	noError(t, places[0].Err)
	return places[0]
}

// held is a time during which a place was held.
type held struct{ begin, end int64 }

// mostHeld returns the most places that were held at a time.
func mostHeld(all []held) (most int) {
	type change struct{ at, by int64 }
	var changes []change
	for _, h := range all {
		changes = append(changes, change{h.begin, 1}, change{h.end, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now := 0
	for _, c := range changes {
		now += int(c.by)
		most = max(most, now)
	}
	return most
}
