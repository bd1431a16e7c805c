package memory

import (
	"context"
	"math"
	"time"

	"github.com/throttr-go/throttr/window"
)

// This file has what the rolling algorithms have in common: see [window.Algorithm.Rolling]. Each
// keeps the state of a window in an entry, in a way of its own, and has a file of its own. The
// higher half of the entry's meta is the generation, as with fixed windows. An entry with the
// generation 0 is new: it has only a scale.

var (
	_ window.Peeker = (*Backend)(nil)
	_ window.Teller = (*Backend)(nil)
)

// Algorithm implements [window.Teller].
func (b *Backend) Algorithm() window.Algorithm { return b.algorithm }

// verdict is the decision on a take.
type verdict struct {
	granted bool
	changed bool          // the entry has changed
	count   uint64        // after the take if it is granted, before it otherwise
	wait    time.Duration // until the take would be granted if it is refused
}

// decide decides on a take of n. If it is granted, decide adds it to e, except to that of a log:
// see store. The mutex is held.
func (s *shard) decide(b *Backend, e *entry, now int64, limit, n uint64) verdict {
	switch b.algorithm {
	case window.TokenBucket:
		return e.takeTokens(now, limit, n)
	case window.Sliding:
		return e.takeSliding(now, s.firstStart(b, e, now), limit, n)
	default:
		return s.log.take(e, now, limit, n)
	}
}

// count returns the count of e. The mutex is held.
func (s *shard) count(b *Backend, e *entry, now int64) uint64 {
	switch b.algorithm {
	case window.TokenBucket:
		return e.tokens(now)
	case window.Sliding:
		return e.estimate(now)
	case window.SlidingLog:
		return e.logged()
	default:
		return e.count
	}
}

// active reports whether the window of e has not ended: see entry.active.
func (b *Backend) active(e *entry, now int64) bool {
	return e.activeUntil(b.end(e), now)
}

// end returns when the window of e ends.
func (b *Backend) end(e *entry) int64 {
	if b.algorithm == window.Sliding {
		return e.slidingEnd()
	}
	return e.end()
}

// over reports whether the window of e has been over for KeyOlderThan, or starts too far in the
// future.
func (b *Backend) over(e *entry, now int64) bool {
	end := b.end(e)
	return !b.active(e, now) && (now < end || minus(now, end) >= b.keyOlderThan)
}

// takeID returns the ID of the take that was added to e last: a time that the algorithm chooses,
// moved by an amount that differs for each generation. So giveBack finds the time, and an ID of
// another generation leads to a time that is not near.
func (b *Backend) takeID(e *entry) int64 {
	at := e.start
	if b.algorithm == window.TokenBucket && e.excess() > 0 {
		at-- // rounded down
	}
	return at + b.shift(e)
}

// shift returns the amount that moves the IDs of e.
func (b *Backend) shift(e *entry) int64 {
	if b.algorithm == window.TokenBucket {
		return int64(e.generation() * e.tick())
	}
	return int64(e.generation() * 0x9e3779b97f4a7c15)
}

func (e *entry) generation() uint64 { return e.meta >> 32 }

func (e *entry) setGeneration(g uint32) { e.meta = e.meta&math.MaxUint32 | uint64(g)<<32 }

// renew gives e the next generation. The mutex is held.
func (s *shard) renew(e *entry) {
	if s.generation++; s.generation == 0 {
		s.generation++ // so that no generation is 0
	}
	e.setGeneration(s.generation * 0x9e3779b1) // so that near ones differ by much: see giveBackTokens
}

// load finds the record that counts for k, sets k to its id, and e to its entry. The entry is new if
// there is no active window. The mutex is held.
func (s *shard) load(b *Backend, k *id, e *entry) (r record, now int64, err error) {
	if s.closed {
		return nil, 0, ErrClosed
	}
	r, now = s.find(*k), s.now(b)
	if r == nil && !k.shared() {
		*k, r = s.findShared(b, *k)
	}
	s.read(b, *k, r, now, e)
	return r, now, nil
}

// read sets e to the entry of the record of k, or to a new one if r is nil or the window is not active.
// The mutex is held.
func (s *shard) read(b *Backend, k id, r record, now int64, e *entry) {
	if r != nil {
		*e = r.entry()
		if s.log != nil {
			s.log.trim(e, now)
			r.setState(e)
		}
		if b.active(e, now) {
			return
		}
	}
	*e = entry{scale: k.scale}
}

// store stores the entry of k after n was added to it. If r is nil, it inserts a record, and makes
// room for it if necessary. The mutex is held.
func (b *Backend) store(s *shard, k id, r record, e *entry, now int64, n uint64) error {
	if r != nil && s.log == nil && e.generation() > 0 {
		r.setState(e)
		s.firstEnd = min(s.firstEnd, b.end(e)) // the first call that names the limit of a bucket can end it earlier
		return nil
	}
	if r == nil {
		var err error
		if k, r, err = b.place(s, k, now); err != nil {
			return err
		}
	}
	if e.generation() == 0 {
		s.renew(e)
	}
	if s.log != nil {
		var err error
		if r, err = b.appendLog(s, k, r, e, now, n); err != nil {
			return err
		}
	}
	r.set(*e)
	s.firstEnd = min(s.firstEnd, b.end(e))
	return nil
}

// roll makes a take of the window of k, whose record is r, and sets e to the entry after it. If the
// window is active then, it ends at end; otherwise, end is not after now. The mutex is held.
func (b *Backend) roll(s *shard, k id, r record, now int64, limit, n uint64, e *entry) (v verdict, end int64, err error) {
	if s.closed {
		return v, now, ErrClosed
	}
	s.read(b, k, r, now, e)
	v = s.decide(b, e, now, limit, n)
	if v.changed {
		err = b.store(s, k, r, e, now, n)
		if err == b.errLogs {
			v, err = b.refuse(e, now), nil
		}
	}
	if end = b.end(e); e.generation() == 0 || !e.activeUntil(end, now) {
		end = now
	}
	return v, end, err
}

// refuse returns the verdict on a take for whose times there is no room in the logs.
func (b *Backend) refuse(e *entry, now int64) verdict {
	return verdict{count: e.logged(), wait: e.leftOrScale(now)}
}

// hitRolling is Hit or Take.
func (b *Backend) hitRolling(ctx context.Context, call, key string, scale time.Duration, limit, n uint64) (w window.Window, granted bool, err error) {
	if err := b.checkRolling(ctx, scale, limit); err != nil {
		return w, false, failed(call, key, err)
	}
	s, k := b.locate(key, scale)
	var e entry
	s.mu.Lock() // unlocked without a defer, like in Backend.hit
	r, now := s.find(k), s.now(b)
	if r == nil {
		k, r = s.findShared(b, k)
	}
	v, end, err := b.roll(s, k, r, now, limit, n, &e)
	if err == nil {
		b.describeVerdict(s, &w, &e, now, end, v)
	}
	s.mu.Unlock()
	return w, v.granted && err == nil, failed(call, key, err)
}

// describeVerdict makes w describe a window after a take. The mutex is held.
func (b *Backend) describeVerdict(s *shard, w *window.Window, e *entry, now, end int64, v verdict) {
	*w = window.Window{Count: v.count, Refused: !v.granted, RetryAfter: v.wait}
	if end > now {
		w.Left, w.ExpiresAt, w.ID = minus(end, now), s.timeOf(end), b.takeID(e)
	}
}

// takeCountRolling is TakeCount.
func (b *Backend) takeCountRolling(ctx context.Context, key string, scale time.Duration, limit, n uint64) (
	count uint64, left, wait time.Duration, ends time.Time, granted bool, err error) {
	if err := b.checkRolling(ctx, scale, limit); err != nil {
		return 0, 0, 0, ends, false, failed("take", key, err)
	}
	s, k := b.locate(key, scale)
	s.mu.Lock() // unlocked without a defer, like in Backend.hit
	r, now := s.find(k), s.now(b)
	if r == nil {
		k, r = s.findShared(b, k)
	}
	var v verdict
	var end int64
	ok := false
	switch {
	case r == nil:
	case b.algorithm == window.TokenBucket:
		v, end, ok = r.takeAgain(now, limit, n)
	case b.algorithm == window.Sliding:
		v, end, ok = r.slideAgain(now, limit, n)
	case n == 1:
		v, end, ok = s.log.takeAgain(r, now, limit)
	}
	if !ok {
		var e entry
		if v, end, err = b.roll(s, k, r, now, limit, n, &e); err != nil {
			s.mu.Unlock()
			return 0, 0, 0, ends, false, failed("take", key, err)
		}
	}
	if end > now {
		left = minus(end, now)
		if b.algorithm == window.Sliding {
			ends = s.timeOf(end) // hits on a hot key return it again
		} else {
			ends = s.reference.time.Add(minus(end, s.reference.nanos))
		}
	}
	s.mu.Unlock()
	return v.count, left, v.wait, ends, v.granted, nil
}

// Peek implements [window.Peeker]. Errors are those of [Backend.Get].
func (b *Backend) Peek(ctx context.Context, key string, scale time.Duration, limit, n uint64) (w window.Window, err error) {
	if !b.rolling {
		return window.Peek(ctx, struct{ window.Backend }{b}, key, scale, limit, n)
	}
	if err := b.checkRolling(ctx, scale, limit); err != nil {
		return w, failed("peek", key, err)
	}
	var t taking
	t.shard, t.id = b.locate(key, scale)
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	_, err = b.rollOne(&t, limit, n, &w)
	return w, failed("peek", key, err)
}

// incRolling is Inc, or Set if set is true: what was counted before is forgotten then.
func (b *Backend) incRolling(ctx context.Context, call, key string, scale time.Duration, n uint64, set bool) (w window.Window, err error) {
	defer func() { err = failed(call, key, err) }()
	if err := check(ctx, scale); err != nil {
		return w, err
	}
	s, k := b.locate(key, scale)
	s.mu.Lock()
	defer s.mu.Unlock()
	var e entry
	r, now, err := s.load(b, &k, &e)
	if err != nil {
		return w, err
	}
	if set && k.shared() { // others count there, so the count only gets larger
		n -= min(n, s.count(b, &e, now))
	} else if set && r != nil {
		t := s.windows.forKey(k.key)
		s.endWindow(b, k, t, t.find(k), now)
		r, e = s.find(k), entry{scale: scale}
	}
	if n > 0 {
		n = s.addRolling(b, &e, now, n)
		if err := b.store(s, k, r, &e, now, n); err != nil {
			return w, err
		}
	}
	b.describeRolling(s, &w, &e, now)
	return w, nil
}

// addRolling adds n to e, beyond any limit, and returns how many a log is to store. The mutex is
// held.
func (s *shard) addRolling(b *Backend, e *entry, now int64, n uint64) uint64 {
	switch b.algorithm {
	case window.TokenBucket:
		e.addTokens(now, n)
	case window.Sliding:
		e.addSliding(now, s.firstStart(b, e, now), n)
	default:
		n = min(n, b.maxLimit-min(b.maxLimit, e.logged()))
	}
	return n
}

// describeRolling makes w describe a window if it is active. The mutex is held.
func (b *Backend) describeRolling(s *shard, w *window.Window, e *entry, now int64) {
	if e.generation() == 0 || !b.active(e, now) {
		return
	}
	end := b.end(e)
	w.Count, w.ID = s.count(b, e, now), b.takeID(e)
	w.Left, w.ExpiresAt = minus(end, now), s.timeOf(end)
}

// getRolling is Get for an entry that may be over. The mutex is held.
func (b *Backend) getRolling(s *shard, k id, w *window.Window) error {
	var e entry
	_, now, err := s.load(b, &k, &e)
	if err == nil {
		b.describeRolling(s, w, &e, now)
	}
	return err
}

// giveBackRolling gives n back to the take with an ID. The mutex is held.
func (b *Backend) giveBackRolling(s *shard, k id, takeID int64, n uint64) (bool, error) {
	var e entry
	r, now, err := s.load(b, &k, &e)
	if err != nil || e.generation() == 0 {
		return false, err
	}
	at, ok := takeID-b.shift(&e), false
	switch b.algorithm {
	case window.TokenBucket:
		ok = e.giveBackTokens(now, at, n)
	case window.Sliding:
		ok = e.giveBackSliding(now, at, n)
	default:
		ok = s.log.giveBack(&e, at, n)
	}
	if ok {
		r.set(e)
		s.firstEnd = min(s.firstEnd, b.end(&e))
	}
	return ok, nil
}

// rollAll makes all takes or none, all of which have another record, and describes their windows. The
// mutexes of all shards are held.
func (b *Backend) rollAll(limits []window.Limit, all []taking, windows []window.Window) (granted bool, err error) {
	granted = true
	for i := range all {
		v, err := b.rollOne(&all[i], limits[i].Limit, limits[i].N, &windows[i])
		if err != nil {
			return false, err
		}
		granted = granted && v.granted
	}
	if !granted {
		return false, nil
	}
	for i := range all {
		if granted, err = b.addOne(&all[i], &limits[i], &windows[i]); !granted || err != nil {
			b.undoAll(limits[:i], all[:i])
			return false, err
		}
	}
	for i := range all { // keys that were new may share a window
		takeID := windows[i].ID
		if _, err := b.rollOne(&all[i], limits[i].Limit, 0, &windows[i]); err != nil {
			return false, err
		}
		windows[i].ID = takeID
	}
	return true, nil
}

// rollOne decides on one of several takes, and describes its window before it. The mutex is held.
func (b *Backend) rollOne(t *taking, limit, n uint64, w *window.Window) (verdict, error) {
	var e entry
	_, now, err := t.shard.load(b, &t.id, &e)
	if err != nil {
		return verdict{}, err
	}
	before, end := e, now
	if e.generation() > 0 {
		end = b.end(&e)
	}
	v := t.shard.decide(b, &e, now, limit, n)
	b.describeVerdict(t.shard, w, &before, now, end, v)
	if v.granted {
		w.Count -= min(n, w.Count)
	}
	return v, nil
}

// addOne makes one of several takes. It keeps in t what undoAll needs. The mutex is held.
func (b *Backend) addOne(t *taking, l *window.Limit, w *window.Window) (granted bool, err error) {
	var e entry
	r, now, err := t.shard.load(b, &t.id, &e)
	if err != nil {
		return false, err
	}
	t.entry, t.opened = e, r == nil
	v := t.shard.decide(b, &e, now, l.Limit, l.N)
	if v.changed {
		err = b.store(t.shard, t.id, r, &e, now, l.N)
		if err == b.errLogs {
			v, err = b.refuse(&e, now), nil
		}
	}
	if !v.granted {
		w.Refused, w.RetryAfter = true, v.wait
	}
	w.ID = 0
	if e.generation() > 0 {
		w.ID = b.takeID(&e)
	}
	return v.granted, err
}

// undoAll undoes takes, the last one first. Their windows may have been removed to make room. The
// mutexes are held.
func (b *Backend) undoAll(limits []window.Limit, all []taking) {
	for i := len(all) - 1; i >= 0; i-- {
		t := &all[i]
		t.refresh(b)
		r := t.record
		switch {
		case r == nil || limits[i].N == 0:
		case t.opened:
			tab := t.shard.windows.forKey(t.id.key)
			t.shard.drop(tab, tab.find(t.id))
		case b.algorithm == window.SlidingLog:
			e := r.entry()
			t.shard.log.shorten(&e, limits[i].N)
			r.set(e)
		default:
			r.set(t.entry)
		}
		t.shard.firstEnd = math.MinInt64 // a window ends earlier
	}
}

// checkRolling returns the error of a hit or take that must not be made.
func (b *Backend) checkRolling(ctx context.Context, scale time.Duration, limit uint64) error {
	if err := check(ctx, scale); err != nil {
		return err
	}
	return b.checkLimit(limit)
}

// plus returns a + b, neither of which is negative, or the largest Duration if the sum is larger.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
