package redisbackend_test

import (
	"fmt"
	"github.com/throttr-go/throttr/internal/limits"
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

// Products of a count and a time are not exact in a script from 2^53 on. Some of those here are a multiple of the
// scale, where rounding up is most likely to be wrong, and many are the same double.
func TestSlidingWindowsAreExactWhereDoublesAreNot(t *testing.T) {
	clock := backendtest.NewClock()
	b := redisbackend.New(startServer(t).connect(), rediswindow.WithClock(clock.Now))
	r := rand.New(rand.NewPCG(1, 2))
	tried := 0
	for i := range 600 {
		scale := 24 * time.Hour
		before := uint64(1_000_000)
		into := time.Duration(r.Int64N(1_000_000)) * (scale / 1_000_000)
		if i%3 > 0 {
			scale = time.Duration(1000+r.Int64N(rediswindow.MaxScale.Microseconds()/2)>>r.IntN(30)) * time.Microsecond
			before = rediswindow.MaxCount - r.Uint64N(1000)
			into = time.Duration(r.Int64N(scale.Microseconds())) * time.Microsecond
		}
		start := limits.AlignedStart(backendtest.NewClock().Now(), scale)
		set(clock, start)
		key := fmt.Sprint(i)
		must(t, b.Set, key, limitOf(window.SlidingWindow, scale, 10), before)
		set(clock, start.Add(scale+into))
		w := must(t, b.Peek, key, limitOf(window.SlidingWindow, scale, 10), 0)
		part := big.NewInt((scale - into).Microseconds())
		weight := part.Mul(part, new(big.Int).SetUint64(before))
		weight.Add(weight, big.NewInt(scale.Microseconds()-1)).Div(weight, big.NewInt(scale.Microseconds()))
		expect(t, before > 1_000_000 || w.Count == weight.Uint64(), "%+v, want %v", w, weight)
		l := limitOf(window.SlidingWindow, scale, w.Count+r.Uint64N(3))
		if l.Max > rediswindow.MaxCount {
			continue
		}
		expect(t, !takeAndPeek(t, b, key, l, l.Max-w.Count+1), "%d of %d", l.Max-w.Count+1, l.Max)
		expect(t, takeAndPeek(t, b, key, l, l.Max-w.Count), "%d of %d", l.Max-w.Count, l.Max)
		tried++
	}
	expect(t, tried > 400, "only %d", tried)
}

// Random takes of random limits decide the same in the script and in what is returned.
func TestDecisionsOfScriptsAreReturnedUnchanged(t *testing.T) {
	each(t, func(t *testing.T, s *server, a window.Algorithm) {
		if !a.Rolling() {
			return
		}
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
