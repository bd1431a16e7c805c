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
	// charge adds n, although it may be over the limit.
	charge(now int64, n uint64)
	// giveBack gives n back of a take at a time that left the given end.
	giveBack(now, taken, end int64, n uint64) bool
}

// newRollingState returns the state of a window without hits.
func newRollingState(a window.Algorithm, scale int64, limit uint64) rollingState {
	switch a {
	case window.TokenBucket:
		return &bucketState{each: scale / int64(limit), limit: limit}
	case window.SlidingWindow:
		return &slidingState{scale: scale, hits: map[int64]uint64{}}
	default:
		return &logState{scale: scale}
	}
}

// bucketState is a token bucket in which a token comes back every each.
type bucketState struct {
	each, full int64
	limit      uint64
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

// charge adds up to twice the limit.
func (s *bucketState) charge(now int64, n uint64) {
	before := s.full
	s.add(now, n)
	most := max(before, now+2*int64(s.limit)*s.each)
	if over := s.full - most; over > 0 {
		s.full = most
		s.taken[len(s.taken)-1].n -= uint64((over + s.each - 1) / s.each)
	}
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
func (s *bucketState) adopt(c calls, w window.Window) {
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

func (s *slidingState) charge(now int64, n uint64) { s.add(now, n) }

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

func (s *logState) charge(now int64, n uint64) { s.add(now, n) }

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
	client     calls // that has made the take
	id         int64
	taken, end int64
	n          uint64
}

// rollingLimits are limits whose tokens come back in whole milliseconds, with a scale of one
// second.
var rollingLimits = []uint64{1, 4, 5, 10}

// testRollingModel makes random calls one after the other, advances the clock in between, and
// compares the results with those of the model.
func testRollingModel(c calls) { c.compareRolling(c.clients()[:1], 13, 5000) }

// testRollingModelOfTwo is testRollingModel with calls of two clients: each must find what the other one
// has left.
func testRollingModelOfTwo(c calls) {
	for seed := range uint64(4) {
		c.compareRolling(c.clients(), seed, 2500)
	}
}

// compareRolling makes random calls of clients and compares the results with those of a model.
func (c calls) compareRolling(clients []calls, seed uint64, steps int) {
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
		if w.step(clients[client].upTo(limit), random, key, scale, limit) {
			delete(windows, key)
		}
		if c.Failed() {
			c.Fatalf("seed %d, step %d, client %d, key %s", seed, step, client, key)
		}
		d := time.Duration(random.Int64N(30))
		if random.IntN(20) == 0 {
			d = time.Duration(random.Int64N(1500))
		}
		if w.replaced && c.SkipsDenied && len(clients) > 1 {
			// Until then, a client may count what it has read of the aligned window before.
			d = c.nextAligned(scale) / unit
		}
		c.Clock.Advance(d * unit)
	}
}

// step makes a random call, and returns whether the window is forgotten.
func (w *rollingWindow) step(c calls, random *rand.Rand, key string, scale time.Duration, limit uint64) (forgotten bool) {
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
		got = c.get(key, scale)
	case 2:
		n = max(n, 1)
		w.state.charge(now, n)
		got = c.charge(key, scale, n)
	case 3, 4:
		got = c.get(key, scale)
	case 5, 6:
		if len(w.takes) > 0 {
			w.giveBack(c, random.IntN(len(w.takes)), random, key, scale)
		}
		got = c.get(key, scale)
	case 7, 8, 9, 10:
		got = c.take(key, scale, limit, max(n, 1))
		w.decided(c, got, now, before, limit, max(n, 1))
		if _, end := w.state.count(now); !got.Refused {
			w.takes = append(w.takes, rollingHolding{c, got.ID, now, end, max(n, 1)})
		}
	default:
		got = c.hit(key, scale, limit, n)
		w.decided(c, got, now, before, limit, n)
	}
	count, end := w.state.count(now)
	c.state(got, count)
	c.left(got, max(0, time.Duration(end-now)*time.Duration(min(count, 1))), 1)
	return forgotten
}

// decided compares the decision on a hit with that of the model, and adds it there if it is
// granted.
func (w *rollingWindow) decided(c calls, got window.Window, now int64, before, limit, n uint64) {
	granted := n <= limit && before <= limit-n
	if got.Refused == granted {
		c.Errorf("a hit of %d of %d with a count of %d returns %+v", n, limit, before, got)
	}
	if granted {
		w.state.add(now, n)
	} else if n > limit && got.RetryAfter != window.Never {
		c.Errorf("RetryAfter of a hit over the limit is %v", got.RetryAfter)
	}
}

// giveBack gives back some of a take.
func (w *rollingWindow) giveBack(c calls, i int, random *rand.Rand, key string, scale time.Duration) {
	h := w.takes[i]
	w.takes = slices.Delete(w.takes, i, i+1)
	n, now := 1+random.Uint64N(h.n), c.Clock.Now().UnixNano()
	ok, err := h.client.Backend.GiveBack(c.Context(), key, c.limit(scale, c.most), n, h.id)
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
