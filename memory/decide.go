package memory

import (
	"cmp"
	"context"
	"time"

	"github.com/throttr-go/throttr/internal/breaker"
	"github.com/throttr-go/throttr/internal/fastpath"
	"github.com/throttr-go/throttr/internal/inside"
	"github.com/throttr-go/throttr/window"
)

func init() {
	inside.Add(func(b *Backend) any { return (*decider)(b) })
	inside.Add(func(*Backend) any { return breaker.Parts{Of: func(string) int { return 0 }} }) // it is never away
	inside.Add(func(b *Backend) any { return b.ledger() })
}

// exact says that the time that is left must be exact: that of a Window, by which leases know how long they may use
// what they have taken.
const exact fastpath.Op = 1 << 7

// decider is a Backend as a [fastpath.Decider].
type decider Backend

// Decide makes a hit or a take, and returns false only if that fails. On a window that is active, as most are, or
// of a bucket that is not full, it needs no lock but that of the record. If the call is granted by a fixed
// window, left may be up to 0.1 s too long, unless the Op is exact.
//
// If the clock is read, that takes half of the time of a hit. It is read under the mutex, so
// that the order of times is the order of counts. The mutex is unlocked without a defer, which
// takes 2 ns.
func (d *decider) Decide(ctx context.Context, key string, by window.Algorithm, max uint64, scale time.Duration, n uint64, op fastpath.Op, burst uint64, name string) (
	count uint64, left, retry time.Duration, expires time.Time, id int64, granted, ok bool) {
	if ctx.Err() != nil {
		return 0, 0, 0, expires, 0, false, false
	}
	b := (*Backend)(d)
	var r *record
	if len(key) <= shortKey && name == "" && by != window.SlidingLog {
		w := wordsOf(key)
		h := b.hashWords(w)
		s := &b.shards[h&uint64(len(b.shards)-1)]
		r = s.table.Load().findShort(mix(h, scale, kind(by)), kind(by), len(key), scale, w)
	} else {
		var k windowID
		s := b.locate(key, by, scale, name, &k)
		if by == window.SlidingLog {
			return b.decideByLog(s, &k, max, n, op)
		}
		r = s.table.Load().find(&k)
	}
	if r == nil {
		return b.decideLocked(key, by, max, scale, n, op, burst, name)
	}
	var v verdict
	var now, end int64
	var ref *reference
	r.mu.Lock()
	if by == window.FixedWindow && op&exact == 0 {
		if count, now, end, id, ok := r.countCoarsely(&b.clock, max, n); ok {
			r.mu.Unlock()
			ref := b.clock.reference.Load() // of the system's clock, as the coarse clock is: timeOf takes 1 ns more
			return count, minus(end, now), 0, time.Unix(ref.second, int64(minus(end, ref.begun))), id, true, true
		}
	}
	if r.busy() {
		r.mu.Unlock()
		return b.decideLocked(key, by, max, scale, n, op, burst, name)
	}
	switch by {
	case window.FixedWindow, window.AlignedWindow:
		v, now, end, ref, ok = r.countAgain(&b.clock, by == window.AlignedWindow, op, max, n)
		id = fixedID(r.start, r.meta)
	case window.TokenBucket:
		now, ref = b.clock.now()
		v, end, ok = r.takeAgain(now, rule{max, cmp.Or(burst, max)}, n)
		id = bucketID(r.state())
	case window.SlidingWindow:
		now, ref = b.clock.now()
		now += ref.ahead
		v, end, ok = r.slideAgain(now, max, n)
		id = spreadID(r.state())
	}
	if !ok {
		r.mu.Unlock()
		return b.decideLocked(key, by, max, scale, n, op, burst, name)
	}
	r.calls++
	r.mu.Unlock()
	left = minus(end, now)
	if by == window.AlignedWindow || by == window.SlidingWindow {
		end = int64(minus(end, ref.ahead))
	}
	return v.count, left, v.wait, ref.timeOf(end), id, v.granted, true
}

// decideByLog makes a take of a log that has times.
func (b *Backend) decideByLog(s *shard, k *windowID, max, n uint64, op fastpath.Op) (
	count uint64, left, retry time.Duration, expires time.Time, id int64, granted, ok bool) {
	var v verdict
	var now, end int64
	var ref *reference
	s.mu.Lock()
	r := s.find(k)
	if r != nil && n == 1 && max <= b.maxLog {
		now, ref = s.now(b)
		v, end, ok = s.log.takeAgain(r, now, max)
	}
	if !ok {
		s.mu.Unlock()
		return b.decideLocked(k.key, window.SlidingLog, max, k.scale, n, op, 0, k.name)
	}
	s.calls++
	id = spreadID(r.state())
	s.mu.Unlock()
	return v.count, minus(end, now), v.wait, ref.timeOf(end), id, v.granted, true
}

// decideLocked makes a hit or a take on any window.
func (b *Backend) decideLocked(key string, by window.Algorithm, max uint64, scale time.Duration, n uint64, op fastpath.Op, burst uint64, name string) (
	count uint64, left, retry time.Duration, expires time.Time, id int64, granted, ok bool) {
	l := window.Limit{Name: name, Max: max, Scale: scale, Algorithm: by, Burst: burst}
	of := take
	if op&fastpath.Hit != 0 {
		of = hit
	}
	w, err := b.use(context.Background(), of, key, &l, n)
	if granted = !w.Refused && (of == take || by.Rolling() || w.Count <= max); !granted {
		retry = cmp.Or(w.RetryAfter, w.Left, scale)
	}
	return w.Count, w.Left, retry, w.ExpiresAt, w.ID, granted, err == nil
}
