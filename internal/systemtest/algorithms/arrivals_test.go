package algorithms_test

import (
	"math/rand/v2"
	"time"
)

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
