package memory

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Hit implements [window.Backend]. Every hit of a fixed or aligned window is counted.
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, algorithm.Hit, key, &l, n, &w)
	return w, err
}

// Take implements [window.Backend].
func (b *Backend) Take(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, algorithm.Take, key, &l, n, &w)
	return w, err
}

// Charge implements [window.Backend].
func (b *Backend) Charge(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, algorithm.Charge, key, &l, n, &w)
	return w, err
}

// Peek implements [window.Backend].
func (b *Backend) Peek(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, algorithm.Peek, key, &l, n, &w)
	return w, err
}

// Set implements [window.Backend].
func (b *Backend) Set(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, algorithm.Set, key, &l, n, &w)
	return w, err
}

// call makes a call of one window, and makes w, which is zero, describe that.
func (b *Backend) call(ctx context.Context, v algorithm.Verb, key string, l *window.Limit, n uint64,
	w *window.Window) error {
	k, s, err := b.begin(ctx, key, l, n)
	if err != nil {
		return b.after(v.String(), key, err)
	}
	at := b.clock.now()
	state := s.apply(v, &k, l, n, at)
	if state.Wait == algorithm.NoRoom {
		s.sweep(at)
		state = s.apply(v, &k, l, n, at)
	}
	if state.Wait == algorithm.NoRoom {
		if v == algorithm.Charge || v == algorithm.Set {
			s.mu.Unlock()
			return b.after(v.String(), key, b.errFull)
		}
		state = b.usedUp(l, state)
	}
	s.calls++
	state.Describe(w, at) // the caller copies w: by the end of the unlock, all of it has been written
	s.mu.Unlock()
	return nil
}

// GiveBack implements [window.Backend]. A count that is as large as possible stays as it is.
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64,
	id int64) (given bool, err error) {
	k, s, err := b.begin(ctx, key, &l, n)
	if err != nil {
		return false, b.after("give back", key, err)
	}
	defer s.mu.Unlock()
	s.calls++
	if r := s.find(&k, &l); r != nil {
		by := algorithm.RuleOf(&l)
		given = by.GiveBack(&r.Record, b.clock.now(), id, n)
		s.removeEmpty(r)
	}
	return given, nil
}

// Reset implements [window.Backend].
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) error {
	k, s, err := b.begin(ctx, key, &l, 0)
	if err != nil {
		return b.after("reset", key, err)
	}
	defer s.mu.Unlock()
	s.calls++
	if r := s.find(&k, &l); r != nil {
		s.remove(r)
	}
	return nil
}

// begin begins a call, and locks the shard. If it returns an error, it does neither. The call reads the time after it,
// while the mutex is held: if it has waited for the mutex, it would otherwise bring a time from before the record's
// window, which looks as if the clock had gone back. It counts itself, unless it fails.
func (b *Backend) begin(ctx context.Context, key string, l *window.Limit, n uint64) (k id, s *shard, err error) {
	if err := algorithm.Check(l, n, b.maxLog); err != nil { // again: a backend may be called without a RateLimit
		return k, nil, err
	}
	if err := ctx.Err(); err != nil {
		return k, nil, err
	}
	k, s = b.locate(key, l)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return k, nil, window.ErrClosed
	}
	return k, s, nil
}

// apply makes a call for the record of a key and limit, or a new one, if there is room for what that counts. A Peek
// changes nothing.
func (s *shard) apply(v algorithm.Verb, k *id, l *window.Limit, n uint64, at algorithm.Time) algorithm.State {
	s.series++
	by := algorithm.RuleOf(l)
	by.MaxLog = s.maxLog
	by.Room = s.maxTimes - s.times
	r := s.find(k, l)
	switch {
	case r == nil:
		if s.count >= s.maxCount {
			by.Room = -1 // less than a take ever needs, which may be 0
		}
		s.scratch = algorithm.Record{}
		state := by.Call(v, &s.scratch, at, n, s.series)
		if !s.scratch.Empty() {
			s.insert(k, l, &s.scratch)
		}
		return state
	case v == algorithm.Peek:
		by.Restart(&r.Record, at)
		s.scratch = r.Record // the copy has the same Log, of which a Peek drops what is over
		return by.Call(v, &s.scratch, at, n, s.series)
	}
	state := by.Call(v, &r.Record, at, n, s.series)
	s.times = s.maxTimes - by.Room // which is less if its log has grown
	s.removeEmpty(r)
	return state
}

// usedUp returns what is told of a record for which there is no room: the state of a limit that is used up, whose
// window is not known. The next cleaning makes room, or a call before, or the end of what is in a log.
func (b *Backend) usedUp(l *window.Limit, s algorithm.State) algorithm.State {
	wait := min(b.cleanPeriod, window.Never-1)
	if s.Left > 0 {
		wait = min(wait, s.Left)
	}
	return algorithm.State{Count: limits.Capacity(l), Wait: wait}
}

// clock tells the time, and how long it has been since the clock was made. To read the system's monotonic clock takes
// half as long as to read both clocks, so the wall clock is read once a second. In between, times of day are those of
// the last reading.
type clock struct {
	read   func() time.Time
	system bool // it is the system's clock
	origin time.Time
	last   atomic.Pointer[algorithm.Reading]
	maxAge time.Duration // of the last reading
}

func newClock(read func() time.Time) *clock {
	c := &clock{read: read, system: read == nil, maxAge: 100 * 365 * 24 * time.Hour} // a [time.Duration] holds 292 years
	if c.system {
		c.read = time.Now
		c.maxAge = time.Second
	}
	c.origin = c.read()
	c.refresh()
	return c
}

// now reads the time.
func (c *clock) now() algorithm.Time {
	last := c.last.Load()
	var age time.Duration
	if c.system {
		age = time.Since(c.origin) - time.Duration(last.Now)
	} else {
		age = c.read().Sub(last.Day) // which does not wrap around
	}
	if age.Abs() >= c.maxAge {
		last = c.refresh()
		age = 0
	}
	return algorithm.Time{Now: last.Now + int64(age), Last: last}
}

// refresh reads the wall clock, too.
func (c *clock) refresh() *algorithm.Reading {
	now := c.read()
	last := &algorithm.Reading{Day: now.Round(0)}
	if c.system {
		last.Now = int64(now.Sub(c.origin))
	} else {
		last.Now = algorithm.Nanos(now) - algorithm.Nanos(c.origin)
	}
	c.last.Store(last)
	return last
}
