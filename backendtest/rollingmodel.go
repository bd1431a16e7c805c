package backendtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/throttr-go/throttr/window"
)

// rollingState is the simplest implementation of a rolling algorithm, for one window whose limit is
// always the same. Times are nanoseconds.
type rollingState interface {
	// count returns the count, and when it is 0 if nobody hits.
	count(now int64) (n uint64, end int64)
	add(now int64, n uint64)
	// giveBack gives n back of a take at a time that left the given end.
	giveBack(now, taken, end int64, n uint64) bool
}

// newRollingState returns the state of a window without hits.
func newRollingState(a window.Algorithm, scale int64, limit uint64) rollingState {
	switch a {
	case window.TokenBucket:
		return &bucketState{each: scale / int64(limit)}
	case window.Sliding:
		return &slidingState{scale: scale, hits: map[int64]uint64{}}
	default:
		return &logState{scale: scale}
	}
}

// bucketState is a token bucket in which a token comes back every each.
type bucketState struct {
	each, full int64
	taken      []grant // since it was full last
}

func (s *bucketState) count(now int64) (uint64, int64) {
	return uint64((max(0, s.full-now) + s.each - 1) / s.each), s.full
}

func (s *bucketState) add(now int64, n uint64) {
	if s.full <= now {
		s.full, s.taken = now, nil
	}
	s.full += int64(n) * s.each
	s.taken = append(s.taken, grant{time.Unix(0, now), n})
}

func (s *bucketState) giveBack(now, taken, end int64, n uint64) bool {
	for i := range s.taken {
		if h := &s.taken[i]; h.at.UnixNano() == taken && h.n >= n {
			h.n -= n
			return end > now
		}
	}
	return false
}

// least returns when the bucket would be full if nothing had been taken that was given back.
func (s *bucketState) least() (full int64) {
	for _, h := range s.taken {
		full = max(full, h.at.UnixNano()) + int64(h.n)*s.each
	}
	return full
}

// adopt makes the state that of the window after something was given back. A backend may give less
// back.
func (s *bucketState) adopt(c rolling, w window.Window) {
	full := c.Clock.Now().Add(w.Left).UnixNano()
	if full < min(s.full, s.least()) || full > s.full {
		c.Errorf("after a give-back the bucket is full at %v, want %v to %v", full, s.least(), s.full)
	}
	s.full = full
}

// slidingState is the hits of aligned windows by their number.
type slidingState struct {
	scale int64
	hits  map[int64]uint64
}

func (s *slidingState) count(now int64) (uint64, int64) {
	present, end := now/s.scale, int64(0)
	previous := s.hits[present-1] * uint64(s.scale-now%s.scale)
	for i, n := range s.hits {
		if n > 0 {
			end = max(end, (i+2)*s.scale)
		}
	}
	return (previous+uint64(s.scale)-1)/uint64(s.scale) + s.hits[present], end
}

func (s *slidingState) add(now int64, n uint64) { s.hits[now/s.scale] += n }

func (s *slidingState) giveBack(now, taken, _ int64, n uint64) bool {
	i := taken / s.scale
	if i < now/s.scale-1 {
		return false
	}
	s.hits[i] -= n
	return true
}

// logState is the times of all hits.
type logState struct {
	scale int64
	times []int64
}

func (s *logState) count(now int64) (uint64, int64) {
	s.times = slices.DeleteFunc(s.times, func(t int64) bool { return now-t >= s.scale })
	if len(s.times) == 0 {
		return 0, 0
	}
	return uint64(len(s.times)), s.times[len(s.times)-1] + s.scale
}

func (s *logState) add(now int64, n uint64) {
	s.times = append(s.times, slices.Repeat([]int64{now}, int(n))...)
}

func (s *logState) giveBack(now, taken, _ int64, n uint64) bool {
	s.count(now)
	i := slices.Index(s.times, taken)
	if i >= 0 {
		s.times = slices.Delete(s.times, i, i+int(n))
	}
	return i >= 0
}

// rollingWindow is a window of the model.
type rollingWindow struct {
	state    rollingState
	takes    []rollingHolding
	replaced bool // by Set or Reset, in the last step
}

// rollingHolding is a take that was granted.
type rollingHolding struct {
	client     rolling // that has made the take
	id         int64
	taken, end int64
	n          uint64
}

// rollingLimits are limits whose tokens come back in whole milliseconds, with a scale of one
// second.
var rollingLimits = []uint64{1, 4, 5, 10}

// testRollingModel makes random calls one after the other, advances the clock in between, and
// compares the results with those of the model.
func testRollingModel(c rolling) { c.compare(c.clients()[:1], 13, 5000) }

// testRollingModelOfTwo is testRollingModel with calls of two clients: each must find what the other one
// has left.
func testRollingModelOfTwo(c rolling) {
	for seed := range uint64(4) {
		c.compare(c.clients(), seed, 2500)
	}
}

// compare makes random calls of clients and compares the results with those of a model.
func (c rolling) compare(clients []takes, seed uint64, steps int) {
	random := rand.New(rand.NewPCG(seed, 14))
	unit := c.stretch(time.Millisecond)
	scale := 1000 * unit
	windows := map[string]*rollingWindow{}
	for step := range steps {
		limit := rollingLimits[random.IntN(len(rollingLimits))]
		key := fmt.Sprintf("%d/%d of k%d", seed, len(clients), limit)
		w := windows[key]
		if w == nil {
			w = &rollingWindow{state: newRollingState(c.Algorithm, int64(scale), limit)}
			windows[key] = w
		}
		client := random.IntN(len(clients))
		w.replaced = false
		if w.step(rolling{clients[client]}, random, key, scale, limit) {
			delete(windows, key)
		}
		if c.Failed() {
			c.Fatalf("seed %d, step %d, client %d, key %s", seed, step, client, key)
		}
		d := time.Duration(random.Int64N(30))
		if random.IntN(20) == 0 {
			d = time.Duration(random.Int64N(1500))
		}
		if now := c.Clock.Now(); w.replaced && c.SkipsDenied && len(clients) > 1 {
			// Until then, a client may count what it has read of the aligned window before.
			d = window.Aligned.Start(now, scale).Add(scale).Sub(now) / unit
		}
		c.Clock.Advance(d * unit)
	}
}

// step makes a random call, and returns whether the window is forgotten.
func (w *rollingWindow) step(c rolling, random *rand.Rand, key string, scale time.Duration, limit uint64) (forgotten bool) {
	now := c.Clock.Now().UnixNano()
	before, _ := w.state.count(now)
	n := random.Uint64N(limit + 2)
	var got window.Window
	switch random.IntN(16) {
	case 0:
		c.reset(key, scale)
		got = c.get(key, scale)
		w.state = newRollingState(c.Algorithm, int64(scale), limit)
		forgotten, w.replaced = true, true
	case 1:
		w.state = newRollingState(c.Algorithm, int64(scale), limit)
		n = min(n, limit)
		w.state.add(now, n)
		c.set(key, scale, n)
		w.takes, w.replaced = nil, true
		got = c.hit(key, scale, limit, 0) // names the limit
	case 2:
		n = min(n, limit-min(before, limit))
		w.state.add(now, n)
		c.inc(key, scale, n)
		got = c.hit(key, scale, limit, 0)
	case 3, 4:
		got = c.get(key, scale)
	case 5, 6:
		if len(w.takes) > 0 && c.taker != nil {
			w.giveBack(c, random.IntN(len(w.takes)), random, key, scale)
		}
		got = c.get(key, scale)
	case 7, 8, 9, 10:
		if c.taker == nil {
			return false
		}
		var granted bool
		if got, granted = c.take(key, scale, limit, n); granted == got.Refused {
			c.Errorf("a take returns %v and %+v", granted, got)
		}
		w.decided(c, got, now, before, limit, n, scale)
		if _, end := w.state.count(now); granted && n > 0 {
			w.takes = append(w.takes, rollingHolding{c, got.ID, now, end, n})
		}
	default:
		got = c.hit(key, scale, limit, n)
		w.decided(c, got, now, before, limit, n, scale)
	}
	count, end := w.state.count(now)
	c.state(got, count)
	c.left(got, max(0, time.Duration(end-now)*time.Duration(min(count, 1))), 1)
	return forgotten
}

// decided compares the decision on a hit with that of the model, and adds it there if it is
// granted.
func (w *rollingWindow) decided(c rolling, got window.Window, now int64, before, limit, n uint64, scale time.Duration) {
	granted := n <= limit && before <= limit-n
	if got.Refused == granted {
		c.Errorf("a hit of %d of %d with a count of %d returns %+v", n, limit, before, got)
	}
	switch {
	case granted:
		w.state.add(now, n)
	case n > limit && before == 0 && got.RetryAfter != scale:
		c.Errorf("RetryAfter of a hit over the limit is %v", got.RetryAfter)
	case n > limit && before > 0 && got.RetryAfter != got.Left:
		c.Errorf("RetryAfter of a hit over the limit is %v, Left is %v", got.RetryAfter, got.Left)
	}
}

// giveBack gives back some of a take.
func (w *rollingWindow) giveBack(c rolling, i int, random *rand.Rand, key string, scale time.Duration) {
	h := w.takes[i]
	w.takes = slices.Delete(w.takes, i, i+1)
	n, now := 1+random.Uint64N(h.n), c.Clock.Now().UnixNano()
	ok, err := h.client.taker.GiveBack(c.Context(), key, scale, h.id, n)
	if err != nil {
		c.Fatalf("GiveBack: %v", err)
	}
	bucket, isBucket := w.state.(*bucketState)
	if !ok && (c.MayLose || isBucket) {
		return
	}
	if count, _ := w.state.count(now); count == 0 {
		if ok {
			c.Errorf("GiveBack returns true for a window that is over")
		}
		return
	}
	if isBucket {
		defer func() { bucket.adopt(c, c.get(key, scale)) }()
	}
	if want := w.state.giveBack(now, h.taken, h.end, n); ok != want {
		c.Errorf("GiveBack of %d, taken %v ago, returns %v, want %v", n, time.Duration(now-h.taken), ok, want)
	}
}
