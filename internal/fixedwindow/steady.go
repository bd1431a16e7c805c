package fixedwindow

import (
	"context"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
)

// stillTime is how long a clock has to show the same time to be one that stands still. Clocks of
// operating systems move at least every 16 ms.
const stillTime = 20 * time.Millisecond

// steady is the clock of guards. If the backend has a clock of its own, time passes for guards as it
// does by that and by the monotonic clock of the process, whichever is slower. So a jump of the clock
// lets no guard end early, and none passes while the virtual clock of a test stands still.
//
// A nil steady is the monotonic clock of the process.
type steady struct {
	clock func() time.Time // of the backend

	mu               sync.Mutex // guards the fields below
	real, shown, now time.Time  // when clock last showed another time: by the process, the backend, and the steady
}

// newSteady returns the clock of guards of a backend with a clock of its own.
func newSteady(clock func() time.Time) *steady {
	now := time.Now()
	return &steady{clock: clock, real: now, shown: clock(), now: now}
}

// Now returns the time. Times of a steady have nothing to do with those of other clocks.
func (s *steady) Now() time.Time {
	if s == nil {
		return time.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	real, shown := time.Now(), s.clock()
	if shown.Equal(s.shown) { // it may be coarse: the time since the last change counts with the next one
		return s.now
	}
	s.now = s.now.Add(max(0, min(real.Sub(s.real), shown.Sub(s.shown))))
	s.real, s.shown = real, shown
	return s.now
}

// sleepUntil waits until a time. It returns ctx's error if ctx ends first. If the backend's clock
// stands still, that of the server does, too, and nothing is gained by waiting: sleepUntil then
// returns soon, and by how much it is too early. What is to be a guard ago has to be so much older.
func (s *steady) sleepUntil(ctx context.Context, at time.Time) (early time.Duration, err error) {
	for {
		left := at.Sub(s.Now())
		if left <= 0 {
			return 0, ctx.Err()
		}
		if s == nil {
			return 0, backoff.Sleep(ctx, left)
		}
		before := s.clock()
		if err := backoff.Sleep(ctx, min(left, stillTime)); err != nil {
			return 0, err
		}
		if left < stillTime && s.clock().Equal(before) {
			if err := backoff.Sleep(ctx, stillTime-left); err != nil {
				return 0, err
			}
		}
		if s.clock().Equal(before) {
			return left, nil
		}
	}
}

// afterFunc calls f at a time, unless stop was called before.
func (s *steady) afterFunc(at time.Time, f func()) (stop func()) {
	left := at.Sub(s.Now())
	if s == nil {
		timer := time.AfterFunc(left, f)
		return func() { timer.Stop() }
	}
	var mu sync.Mutex // guards timer and stopped
	var timer *time.Timer
	stopped := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(left, func() {
		mu.Lock()
		defer mu.Unlock()
		switch left := at.Sub(s.Now()); {
		case stopped:
		case left > 0: // the clock is slow, or stands still
			timer.Reset(max(left, time.Millisecond))
		default:
			f()
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// moment is a time by two clocks. Guards are measured by the backend's [steady]. The ends of windows, as
// users see them, are times of the backend's clock, which can be another one, such as the virtual
// clock of a test.
type moment struct {
	guard, clock time.Time
}

// at returns the moment of another time of the clock of guards, if both clocks run at the same speed.
func (m moment) at(guard time.Time) moment {
	return moment{guard, m.clock.Add(guard.Sub(m.guard))}
}

// span is the time of a request: from before it was sent until its responses had arrived.
type span struct {
	from, to moment
}

// moment returns the present moment, given what the backend's clock shows.
func (b *Backend[T]) moment(now time.Time) moment {
	if b.guardClock != nil {
		return moment{b.guardClock.Now(), now}
	}
	return moment{now, now}
}
