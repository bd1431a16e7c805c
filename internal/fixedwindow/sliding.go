package fixedwindow

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// A sliding window estimates the hits of the last scale: those of the present bucket, and those of the
// one before, weighted by how much of it lies in the last scale. Their records are those of aligned
// windows that have names of their own, since a refused hit is not counted in them: all hits are takes.
//
// Each call that counts also reads the record of the bucket before, in the same round trip, until that
// is final: no client counts there any more. It can be reset, and takes of it can be given back. So it is
// read once more before a hit is refused.

// finalAfter is how long after the end of a bucket its count is taken for final, at most.
const finalAfter = 5 * time.Second

// slide is what is known of a sliding window, beside the present bucket.
type slide struct {
	before uint64 // the count of the bucket before
	final  bool   // before does not grow any more, unless the window is set or reset
	absent bool   // there is no record of the present bucket
}

// nameBefore returns the name of the record of the bucket before, which lives as long as the key of cl.
func (a *aligned[T]) nameBefore(cl *conn.Call[T], bucket int64) []byte {
	n := len(cl.Key)
	both := a.appendName(cl.Key, bucket-1)
	cl.Key = both[:n]
	return both[n:]
}

// addBefore adds a request that reads the record of the bucket before.
func (a *aligned[T]) addBefore(cl *conn.Call[T], bucket int64) {
	conn.Add(cl, codec.Query{Key: a.nameBefore(cl, bucket)})
}

// slideOf returns what the response to that request says, which was sent at a time.
func (a *aligned[T]) slideOf(response conn.Response[T], bucket int64, sent time.Time) (s slide) {
	if response.OK {
		s.before = uint64(^response.Quota)
	}
	s.final = sent.Sub(a.timing.end(bucket-1)) >= min(a.timing.scale/2, finalAfter)
	return s
}

// readBefore reads the record of the bucket before that of s. If that fails, s is as it was.
func (a *aligned[T]) readBefore(ctx context.Context, s *state) {
	now := a.backend.now()
	cl := a.newCall(s.bucket, conn.Interruptible)
	a.addBefore(cl, s.bucket)
	if _, err := a.backend.do(ctx, a.server, cl); err == nil {
		s.slide = a.slideOf(cl.Responses[0], s.bucket, now)
		a.backend.calls.Put(cl)
	}
}

// estimate returns the count of a window: of a sliding window, rounded up.
func (k *known[T]) estimate(s *state, now time.Time) uint64 {
	if s.slide.before == 0 {
		return s.count
	}
	left := min(max(s.clock.Latest.Sub(now), 0), k.scale)
	weight, rest := limits.MulDiv(s.slide.before, uint64(left), uint64(k.scale))
	if rest > 0 {
		weight++
	}
	return beyond(s.count, weight)
}

// result returns a window.
func (k *known[T]) result(s *state, now time.Time) coalesce.Result {
	if k.sliding {
		return k.slidingResult(s, now)
	}
	return s.result(k.scale, s.count, now)
}

// slidingResult returns a sliding window. It ends when its count is 0 if nobody hits.
func (k *known[T]) slidingResult(s *state, now time.Time) coalesce.Result {
	r := coalesce.Result{Count: k.estimate(s, now), ExpiresAt: s.clock.Latest, ID: s.id}
	if s.count > 0 {
		r.ExpiresAt = r.ExpiresAt.Add(k.scale)
	}
	if r.Left = r.ExpiresAt.Sub(now); r.Count == 0 || r.Left <= 0 {
		return coalesce.Result{}
	}
	return r
}

// wait returns after how long a take that was refused fits the known window.
func (k *known[T]) wait(limit, n uint64, now time.Time) time.Duration {
	s, ok := k.current()
	if s.undecided && k.sliding { // a later request
		s.count = s.decided
	}
	return k.waitIn(&s, ok, limit, n, now)
}

// waitIn is wait for a window, if there is one.
func (k *known[T]) waitIn(s *state, ok bool, limit, n uint64, now time.Time) time.Duration {
	switch {
	case n > limit:
		return window.Never
	case !ok: // it has been reset meanwhile
		return 1
	case !k.sliding:
		return k.result(s, now).Left
	}
	end, room, before := s.clock.Latest, limit-n, s.slide.before
	if s.count > room { // not before the next bucket, in which the hits of this one are those before
		end, before = end.Add(k.scale), s.count
	} else {
		room -= s.count
	}
	// The hits before may weigh as much as there is room. They do for so long before the end.
	left, _ := limits.MulDiv(room, uint64(k.scale), max(before, room, 1))
	return max(end.Add(-time.Duration(left)).Sub(now), 1)
}
