// Package algorithms_test checks the limits of all algorithms over every interval of time.
package algorithms_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// bounds are what algorithms guarantee of the hits in any interval as long as the scale: so many times the limit, less
// so many. That of token buckets is limit and what refills meanwhile, in any interval.
var bounds = map[throttr.Algorithm]struct{ times, less uint64 }{
	throttr.FixedWindow: {2, 1}, throttr.AlignedWindow: {2, 0}, throttr.SlidingWindow: {2, 1}, window.SlidingLog: {1, 0},
}

// requireBound requires that hits that were allowed are within the bound of an algorithm.
func requireBound(t *testing.T, algorithm throttr.Algorithm, r rate, allowed []allowedHit, pattern string) {
	if algorithm == window.TokenBucket {
		worst := largestBurst(allowed, r.scale, r.limit)
		require.LessOrEqual(t, worst.Hits, r.limit, "%s: %v: more than refill from %v on", pattern, r, worst.From)
		return
	}
	b, busiest := bounds[algorithm], busiestInterval(allowed, r.scale)
	require.LessOrEqual(t, busiest.Hits, b.times*r.limit-b.less, "%s: %v: from %v on", pattern, r, busiest.From)
}

// TestLimitsHoldInEveryInterval makes a million hits with each algorithm, at random times and at the
// worst ones, on a virtual clock. It logs the most that were allowed in any interval of a scale.
func TestLimitsHoldInEveryInterval(t *testing.T) {
	for _, algorithm := range limits.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			var most interval
			var rateOf rate
			var of string
			random, rates := rand.New(rand.NewPCG(3, 4)), ratesOf(algorithm)
			hits := testkit.Fewer(1_000_000) / (len(patterns) * len(rates))
			for _, p := range patterns {
				for _, r := range rates {
					allowed := call(inMemory(t, algorithm, r), p.start(random, r), hits)
					requireBound(t, algorithm, r, allowed, p.name)
					busiest := busiestInterval(allowed, r.scale)
					if rateOf.limit == 0 || busiest.Hits*rateOf.limit > most.Hits*r.limit {
						most, rateOf, of = busiest, r, p.name
					}
				}
			}
			t.Logf("at most %d in %v, where the limit is %v (hits %s)", most.Hits, rateOf.scale, rateOf, of)
		})
	}
}

// TestWorstCasesAreReached shows that the bounds of the documents are not too high.
func TestWorstCasesAreReached(t *testing.T) {
	for algorithm, most := range map[throttr.Algorithm]uint64{
		throttr.FixedWindow: 199, throttr.AlignedWindow: 200, throttr.SlidingWindow: 199, window.SlidingLog: 100, window.TokenBucket: 199,
	} {
		t.Run(algorithm.String(), func(t *testing.T) {
			worst, random := uint64(0), rand.New(rand.NewPCG(5, 6))
			for _, p := range patterns {
				r := rate{time.Second, 100}
				allowed := call(inMemory(t, algorithm, r), p.start(random, r), 2000)
				worst = max(worst, busiestInterval(allowed, r.scale).Hits)
			}
			require.Equal(t, most, worst)
		})
	}
}

// allowedHit is a hit that was allowed.
type allowedHit struct {
	At time.Duration // since any origin
	N  uint64        // the increment
}

// interval is an interval of time, with the sum of the increments in it.
type interval struct {
	From time.Duration // the interval begins here; the time of a hit
	Hits uint64
}

// busiestInterval returns the interval [From, From+length) with the most hits, and of several the earliest.
// The hits are in the order of their times. Without hits, it returns the zero interval.
func busiestInterval(hits []allowedHit, length time.Duration) (most interval) {
	sum, first := uint64(0), 0
	for _, h := range hits {
		sum += h.N
		for h.At-hits[first].At >= length {
			sum -= hits[first].N
			first++
		}
		if sum > most.Hits {
			most = interval{hits[first].At, sum}
		}
	}
	return most
}

// largestBurst returns the interval of any length that exceeds a rate of limit hits per scale by the most,
// and of several the one that ends first. Its Hits are what it has beyond that rate:
//
//	hits in the interval - length·limit/scale, rounded up
//
// The interval includes its end. A token bucket that holds limit tokens allows at most limit of
// them. The hits are in the order of their times. The products must fit: those of the limit and of the longest pause, in
// nanoseconds, and of the hits in a burst and the scale.
func largestBurst(hits []allowedHit, scale time.Duration, limit uint64) (worst interval) {
	// The level is what the interval that ends now has beyond the rate, times the scale: of all
	// intervals that end now, the largest. It is never below 0, as an interval may begin now.
	var level, highest uint64
	var from, last time.Duration
	for _, h := range hits {
		if drained := uint64(h.At-last) * limit; drained < level {
			level -= drained
		} else {
			level, from = 0, h.At
		}
		last = h.At
		level += h.N * uint64(scale)
		if level > highest {
			highest, worst.From = level, from
		}
	}
	worst.Hits = highest / uint64(scale)
	if highest%uint64(scale) > 0 {
		worst.Hits++
	}
	return worst
}

// rate is what a limiter allows.
type rate struct {
	scale time.Duration
	limit uint64
}

func (r rate) String() string { return fmt.Sprintf("%d in %v", r.limit, r.scale) }

// ratesOf returns the rates of the tests of an algorithm.
func ratesOf(algorithm throttr.Algorithm) []rate {
	rates := []rate{
		{time.Second, 100},
		{time.Minute, 1000},
		{7 * time.Second, 3}, // not a whole number of nanoseconds per hit
		{time.Hour, 1},
		{time.Millisecond, 7000},
	}
	if algorithm == window.SlidingLog {
		return rates
	}
	return append(rates, rate{time.Millisecond, 7_000_000}) // less than a nanosecond per hit
}

// decision is that of a limiter on a hit.
type decision struct {
	allowed    bool
	retryAfter time.Duration // 0 if allowed
}

// limiter decides on a hit of n, at a time that is not before that of the hit before. Time 0 is a
// multiple of every scale.
type limiter func(at time.Duration, n uint64) decision

// inMemory returns a limiter of package memory. It makes hits and takes in turns: they must be the same.
func inMemory(t *testing.T, algorithm throttr.Algorithm, r rate) limiter {
	t.Helper()
	now := time.Unix(0, 0)
	backend := memory.New(memory.WithClock(func() time.Time { return now }))
	t.Cleanup(func() { backend.Close() })
	limits := testkit.NewRateLimit(backend, throttr.WithAlgorithm(algorithm))
	limit := throttr.Limit{Max: r.limit, Scale: r.scale}
	ways := []func(context.Context, string, throttr.Limit, uint64) (throttr.Result, error){limits.HitN, limits.Take}
	calls := 0
	return func(at time.Duration, n uint64) decision {
		now = time.Unix(0, int64(at))
		calls++
		res, err := ways[calls%len(ways)](t.Context(), "k", limit, n)
		if err != nil { // require takes as long as a hit
			require.NoError(t, err)
		}
		return decision{res.Allowed, res.RetryAfter}
	}
}

// caller decides on its next hit: after what pause, and of how much, at most the limit. It knows the
// time and the decision on its last hit.
type caller func(now time.Duration, last decision) (pause time.Duration, n uint64)

// patterns are the callers, by name.
var patterns = []struct {
	name  string
	start func(random *rand.Rand, r rate) caller
}{
	{"a quarter too often, at equal intervals", func(_ *rand.Rand, r rate) caller {
		calls := uint64(0)
		return func(now time.Duration, _ decision) (time.Duration, uint64) {
			calls++
			return time.Duration(float64(calls)*0.8*float64(r.scale)/float64(r.limit)) - now, 1
		}
	}},
	{"a quarter too often, at random times", func(random *rand.Rand, r rate) caller { return atRandom(random, r, 1.25) }},
	{"at random times, of random increments", func(random *rand.Rand, r rate) caller {
		most := r.limit/4 + 1
		next := atRandom(random, rate{r.scale * time.Duration(most+1) / 2, r.limit}, 1.25)
		return func(now time.Duration, last decision) (time.Duration, uint64) {
			pause, _ := next(now, last)
			return pause, 1 + random.Uint64N(most)
		}
	}},
	{"bursts after pauses", func(random *rand.Rand, r rate) caller {
		left := uint64(0)
		return func(time.Duration, decision) (time.Duration, uint64) {
			if left == 0 {
				left = random.Uint64N(2*r.limit) + 1
				return time.Duration(random.Int64N(2 * int64(r.scale))), 1
			}
			left--
			return time.Duration(random.IntN(3)), 1
		}
	}},
	{"just before and just after every multiple of the scale", func(random *rand.Rand, r rate) caller {
		return func(now time.Duration, last decision) (time.Duration, uint64) {
			if last.allowed || random.IntN(4) > 0 {
				return time.Duration(random.IntN(2)), 1
			}
			multiple := (now + r.scale - 1) / r.scale * r.scale // the next one, or now
			if at := multiple + time.Duration(random.IntN(5)-2); at > now {
				return at - now, 1
			}
			return multiple + r.scale - 2 - now, 1
		}
	}},
	{"at the end of every other two scales, a little earlier in the second one", func(_ *rand.Rand, r rate) caller {
		// The worst for sliding windows: the limit in the last nanosecond of a scale, as much as possible in the
		// last but one of the next, and nothing for two more.
		return func(now time.Duration, last decision) (time.Duration, uint64) {
			if last.allowed {
				return 0, 1
			}
			scales := now / r.scale
			at := (scales/4*4+1)*r.scale - 1
			if now >= at {
				at += r.scale - 1
			}
			if now >= at {
				at = (scales/4*4+5)*r.scale - 1
			}
			return at - now, 1
		}
	}},
	{"one after a pause, and as many as possible just before and just after a scale later", func(_ *rand.Rand, r rate) caller {
		// The worst for FixedWindow. The pauses follow refusals, but for the one after the first hit.
		pauses, next := []time.Duration{2 * r.scale, r.scale - 1, 1}, 0
		return func(_ time.Duration, last decision) (time.Duration, uint64) {
			if last.allowed && next != 1 {
				return 0, 1
			}
			pause := pauses[next]
			next = (next + 1) % len(pauses)
			return pause, 1
		}
	}},
	{"as soon as possible", func(_ *rand.Rand, _ rate) caller {
		return func(_ time.Duration, last decision) (time.Duration, uint64) { return last.retryAfter, 1 }
	}},
	{"a nanosecond too early, and again", func(_ *rand.Rand, _ rate) caller {
		return func(_ time.Duration, last decision) (time.Duration, uint64) { return max(last.retryAfter-1, 1), 1 }
	}},
}

// atRandom hits at random times, demand·limit times a scale on average.
func atRandom(random *rand.Rand, r rate, demand float64) caller {
	mean := float64(r.scale) / float64(r.limit) / demand
	at := 0.0 // the mean can be less than a nanosecond
	return func(now time.Duration, _ decision) (time.Duration, uint64) {
		at += random.ExpFloat64() * mean
		return time.Duration(at) - now, 1
	}
}

// call makes hits, and returns those that were allowed.
func call(l limiter, next caller, hits int) (allowed []allowedHit) {
	now, last := time.Duration(0), decision{allowed: true}
	for range hits {
		pause, n := next(now, last)
		now += pause
		if last = l(now, n); last.allowed {
			allowed = append(allowed, allowedHit{At: now, N: n})
		}
	}
	return allowed
}
