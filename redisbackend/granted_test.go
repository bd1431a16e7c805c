package redisbackend_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// takeAndPeek peeks, takes and hits n of a key, all of which must decide the same. It returns whether
// they grant.
func takeAndPeek(t *testing.T, b *rediswindow.Backend, key string, l window.Limit, n uint64) bool {
	t.Helper()
	peeked := must(t, b.Peek, key, l, n)
	taken, err := b.Take(t.Context(), key, l, n)
	noError(t, err)
	granted := !taken.Refused
	for _, w := range []window.Window{peeked, taken} {
		expect(t, granted == !w.Refused, "%d of %v: %+v", n, l, w)
		expect(t, granted == (w.RetryAfter == 0), "%d of %v: %+v", n, l, w)
	}
	if granted && n > 0 {
		expect(t, taken.Count == peeked.Count+n, "%+v, %+v", peeked, taken)
		return granted
	}
	hit := must(t, b.Hit, key, l, n)
	expect(t, hit == taken, "%+v, %+v", taken, hit)
	return granted
}

// Products of a count and a time are not exact in a script from 2^53 on. Half of the products here are
// a multiple of the scale, where rounding up is most likely to be wrong.
func TestRefusedHitsOfSlidingWindowsAreNotGranted(t *testing.T) {
	const limit, scale = 1_000_000, 24 * time.Hour
	clock := backendtest.NewClock()
	b := redisbackend.New(startServer(t).connect(), rediswindow.WithClock(clock.Now))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		set(clock, time.UnixMicro(clock.Now().Truncate(scale).UnixMicro()+r.Int64N(scale.Microseconds())))
		key := fmt.Sprint(i)
		before := limit - r.Uint64N(1000)*uint64(i%2)
		must(t, b.Set, key, limitOf(window.SlidingWindow, scale, 10), before)
		into := time.Duration(r.Int64N(scale.Microseconds())) * time.Microsecond
		if i%2 == 0 {
			into = into.Truncate(scale / limit)
		}
		set(clock, clock.Now().Truncate(scale).Add(scale+into))
		w := must(t, b.Peek, key, limitOf(window.SlidingWindow, scale, 10), 0)
		left := clock.Now().Truncate(scale).Add(scale).Sub(clock.Now()).Microseconds()
		weight := new(big.Int).Mul(new(big.Int).SetUint64(before), big.NewInt(left))
		weight.Add(weight, big.NewInt(scale.Microseconds()-1)).Div(weight, big.NewInt(scale.Microseconds()))
		expect(t, w.Count == weight.Uint64(), "%+v, want %v", w, weight)
		room := limit - w.Count
		expect(t, !takeAndPeek(t, b, key, limitOf(window.SlidingWindow, scale, limit), room+1), "%d before, %v left", before, left)
		expect(t, takeAndPeek(t, b, key, limitOf(window.SlidingWindow, scale, limit), room), "%d before, %v left", before, left)
	}
}

// Of the products that a script compares here, many are the same double.
func TestSlidingWindowsAreExactWhereDoublesAreNot(t *testing.T) {
	client := startServer(t).connect()
	b := func(clock backendtest.Clock) *rediswindow.Backend {
		return redisbackend.New(client, rediswindow.WithClock(clock.Now))
	}
	r := rand.New(rand.NewPCG(3, 4))
	refused := 0
	for i := range 400 {
		scale := time.Duration(1+r.Int64N(rediswindow.MaxScale.Microseconds())>>r.IntN(30)) * time.Microsecond
		clock := backendtest.NewClock()
		start := clock.Now().UnixMicro()/scale.Microseconds()*scale.Microseconds() - scale.Microseconds()
		set(clock, time.UnixMicro(start))
		key := fmt.Sprint(i)
		before := rediswindow.MaxCount - r.Uint64N(1000)
		_, err := b(clock).Set(t.Context(), key, limitOf(window.SlidingWindow, scale, 10), before)
		noError(t, err)
		set(clock, time.UnixMicro(start+scale.Microseconds()+r.Int64N(scale.Microseconds())))
		w, err := b(clock).Peek(t.Context(), key, limitOf(window.SlidingWindow, scale, 10), 0)
		noError(t, err)
		limit := w.Count + r.Uint64N(3)
		if limit > rediswindow.MaxCount {
			continue
		}
		expect(t, !takeAndPeek(t, b(clock), key, limitOf(window.SlidingWindow, scale, limit), limit-w.Count+1), "%d of %d", limit-w.Count+1, limit)
		expect(t, takeAndPeek(t, b(clock), key, limitOf(window.SlidingWindow, scale, limit), limit-w.Count), "%d of %d", limit-w.Count, limit)
		refused++
	}
	expect(t, refused > 300, "only %d", refused)
}

// Random takes of random limits decide the same in the script and in what is returned.
func TestDecisionsOfScriptsAreReturnedUnchanged(t *testing.T) {
	eachRolling(t, func(t *testing.T, s *server, a window.Algorithm) {
		clock := backendtest.NewClock()
		b := redisbackend.New(s.connect(), rediswindow.WithClock(clock.Now))
		r := rand.New(rand.NewPCG(5, uint64(a)))
		for i := range 150 {
			scale := time.Duration(1000+r.Int64N(1<<45)>>r.IntN(40)) * time.Microsecond
			limit := 1 + r.Uint64N(1<<53-1)>>r.IntN(52)
			switch {
			case a == window.SlidingLog:
				limit = 1 + limit%100
			case a == window.TokenBucket: // beyond, counts are exact but for one
				limit = 1 + limit%(1<<53/uint64(scale.Microseconds()))
			}
			key := fmt.Sprint(i)
			for range 6 {
				takeAndPeek(t, b, key, limitOf(a, scale, limit), r.Uint64N(limit+1)>>r.IntN(3))
				takeAndPeek(t, b, key, limitOf(a, scale, limit), limit+1)
				takeAndPeek(t, b, key, limitOf(a, scale, limit), 0)
				clock.Advance(time.Duration(r.Int64N(scale.Microseconds())) * time.Microsecond)
			}
		}
	})
}
