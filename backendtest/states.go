package backendtest

import (
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// state is the simplest implementation of an algorithm, for one window. Times are nanoseconds.
type state interface {
	// count returns the count, and when the window ends if nobody hits: there is none if that is not after now.
	count(now int64) (n uint64, end int64)
	// add counts n, although it may be over the limit.
	add(now int64, n uint64)
	// giveBack gives n back of a take at a time that left the given end.
	giveBack(now, taken, end int64, n uint64) bool
}

// newState returns the state of a window without hits. The limit of one of a rolling algorithm is always
// the same.
func newState(a window.Algorithm, scale, limit int64) state {
	switch a {
	case window.TokenBucket:
		return &bucketState{each: scale / limit, limit: limit}
	case window.SlidingWindow:
		return &slidingState{scale: scale, hits: map[int64]uint64{}}
	case window.SlidingLog:
		return &logState{scale: scale}
	case window.FixedWindow, window.AlignedWindow:
		return &fixedState{scale: scale, aligned: a == window.AlignedWindow}
	}
	panic("backendtest: newState has no case for " + a.String())
}

// fixedState is the count of a fixed window until its end.
type fixedState struct {
	scale   int64
	aligned bool
	hits    uint64
	end     int64
}

func (s *fixedState) count(now int64) (uint64, int64) {
	if now >= s.end {
		return 0, 0
	}
	return s.hits, s.end
}

func (s *fixedState) add(now int64, n uint64) {
	if now >= s.end {
		s.hits = 0
		s.end = s.ends(now)
	}
	s.hits += n
}

// ends returns the end of a window that opens at a time.
func (s *fixedState) ends(at int64) int64 {
	if s.aligned {
		at = limits.AlignedStart(time.Unix(0, at).UTC(), time.Duration(s.scale)).UnixNano()
	}
	return at + s.scale
}

func (s *fixedState) giveBack(now, _, end int64, n uint64) bool {
	if now >= s.end || end != s.end {
		return false
	}
	s.hits -= n
	return true
}

// bucketState is a token bucket in which a token comes back every each.
type bucketState struct {
	each, full, limit int64
	taken             []grant // since it was full last
}

func (s *bucketState) count(now int64) (uint64, int64) {
	return uint64((max(0, s.full-now) + s.each - 1) / s.each), s.full
}

// add counts up to twice the limit.
func (s *bucketState) add(now int64, n uint64) {
	if s.full <= now {
		s.full = now
		s.taken = nil
	}
	s.full += int64(n) * s.each
	if over := s.full - (now + 2*s.limit*s.each); over > 0 {
		s.full -= over
		n -= uint64((over + s.each - 1) / s.each)
	}
	s.taken = append(s.taken, grant{at: time.Unix(0, now), n: n})
}

func (s *bucketState) giveBack(now, taken, end int64, n uint64) bool {
	for i := range s.taken {
		if h := &s.taken[i]; s.full > now && h.at.UnixNano() == taken && h.n >= n {
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
func (s *bucketState) adopt(c calls, w window.Window) {
	full := c.Clock.Now().Add(w.Left).UnixNano()
	c.expect(full >= min(s.full, s.least()) && full <= s.full, "after a give-back the bucket is full at %v, want %v to %v", full, s.least(), s.full)
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
