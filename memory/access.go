package memory

import (
	"math"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// access is the use of one window by a call. The mutex of the shard is held.
type access struct {
	shard  *shard
	id     id     // of the record that counts for the key
	record record // nil: none
	entry  entry  // new if there is no active window
	now    int64  // in the time of the entry

	before entry // of a take of several, before it
	opened bool  // there was no record
}

func (x *access) algorithm() *algorithm { return &algorithms[x.id.kind.algorithm()] }

// load finds the record that counts for the key, and reads it.
func (x *access) load(b *Backend) error {
	if x.record = x.shard.find(&x.id); x.record == nil && x.id.kind&shared == 0 {
		x.record = x.shard.findShared(b, &x.id)
	}
	return x.read(b)
}

// read reads the record. The entry is new if there is none, or the window is not active.
func (x *access) read(b *Backend) error {
	s, a := x.shard, x.algorithm()
	if s.closed {
		return window.ErrClosed
	}
	x.now = s.now(b)
	x.now += s.shift(a)
	if x.record != nil {
		x.entry = x.record.entry()
		if a.logs {
			s.log.trim(&x.entry, x.now)
			x.record.set(x.entry)
		}
		if a.active(x.entry, x.now) {
			return nil
		}
	}
	x.entry = entry{scale: x.id.scale}
	return nil
}

// do makes an operation, and makes w describe the window.
func (x *access) do(b *Backend, op operation, l *window.Limit, n uint64, w *window.Window) error {
	a, r := x.algorithm(), ruleOf(l)
	switch {
	case op == peek:
		x.peek(r, n, w)
		return nil
	case op == set:
		return x.set(b, r, n, w)
	case op == charge, op == hit && !a.rolling:
		return x.charge(b, r, n, w)
	}
	v, err := x.take(b, r, n)
	if err == nil {
		x.describe(w, v)
	}
	return err
}

func ruleOf(l *window.Limit) rule { return rule{l.Max, limits.Holds(*l)} }

// take makes a take.
func (x *access) take(b *Backend, r rule, n uint64) (v verdict, err error) {
	before := x.entry
	if x.entry, v = x.algorithm().take(x.shard, x.entry, x.now, r, n); !v.changed {
		return v, nil
	}
	if err = x.store(b, n); err == b.errLogs {
		// There is no room for its times in the logs.
		x.entry = before
		return verdict{count: before.logged(), wait: before.left(before.end(), x.now)}, nil
	}
	return v, err
}

// charge adds n beyond any limit, and makes w describe the window. A bucket that never gets a token counts
// nothing.
func (x *access) charge(b *Backend, r rule, n uint64, w *window.Window) (err error) {
	a := x.algorithm()
	if r.max == 0 && x.id.kind.algorithm() == window.TokenBucket {
		x.describeNow(w)
		w.Refused, w.RetryAfter = true, window.Never
		return nil
	}
	if n > 0 || !a.rolling {
		x.entry, n = a.charge(x.shard, x.entry, x.now, r, n)
		err = x.store(b, n)
	}
	if err == nil {
		x.describeNow(w)
	}
	return err
}

// set forgets what was counted, and counts n. If others count there, too, the count only gets larger.
func (x *access) set(b *Backend, r rule, n uint64, w *window.Window) error {
	a, s := x.algorithm(), x.shard
	if x.id.kind&shared != 0 {
		if !x.entry.isNew() {
			n -= min(n, a.count(x.entry, x.now))
		}
	} else if x.record != nil {
		t := s.windows.of(&x.id)
		s.endWindow(b, &x.id, t, t.find(&x.id))
		x.record, x.entry = s.find(&x.id), entry{scale: x.id.scale}
	}
	return x.charge(b, r, n, w)
}

// peek decides on a take, and makes w describe the window without it.
func (x *access) peek(r rule, n uint64, w *window.Window) verdict {
	_, v := x.algorithm().take(x.shard, x.entry, x.now, r, n)
	before := v
	if v.granted {
		before.count -= min(n, v.count)
	}
	x.describe(w, before)
	return v
}

// giveBack gives n back to the window or take with an ID, and reports whether it has.
func (x *access) giveBack(id int64, n uint64) (ok bool) {
	if x.entry.isNew() {
		return false
	}
	a := x.algorithm()
	if x.entry, ok = a.giveBack(x.shard, x.entry, x.now, id, n); ok {
		x.record.set(x.entry)
		x.shard.mayEnd(a, x.entry)
	}
	return ok
}

// store stores the entry after n was added to it. If there is no record, it inserts one, and makes
// room for it if necessary.
func (x *access) store(b *Backend, n uint64) (err error) {
	s, a := x.shard, x.algorithm()
	if x.record == nil {
		if x.record, err = b.place(s, &x.id); err != nil {
			return err
		}
	}
	if x.entry.isNew() {
		s.renew(&x.entry)
	}
	if a.logs {
		if err = x.log(b, n); err != nil {
			return err
		}
	}
	x.record.set(x.entry)
	s.mayEnd(a, x.entry)
	return nil
}

// renew gives e the next generation. The mutex is held.
func (s *shard) renew(e *entry) {
	s.generation++
	e.setGeneration(uint64(s.generation * 0x9e3779b1 >> (generationShift - 32))) // so that near ones differ by much
}

// mayEnd notes when the window of e ends. The mutex is held.
func (s *shard) mayEnd(a *algorithm, e entry) {
	s.firstEnd = min(s.firstEnd, int64(minus(a.end(e), s.shift(a))))
}

// end returns when the window ends, if that is after now, and now otherwise.
func (x *access) end() int64 {
	if a := x.algorithm(); !x.entry.isNew() && a.active(x.entry, x.now) {
		return a.end(x.entry)
	}
	return x.now
}

// describe makes w describe the window after a take.
func (x *access) describe(w *window.Window, v verdict) {
	*w = window.Window{Count: v.count, Refused: !v.granted, RetryAfter: v.wait}
	if end := x.end(); end > x.now {
		a := x.algorithm()
		w.Left, w.ID = minus(end, x.now), a.id(x.entry)
		w.ExpiresAt = x.shard.timeOf(int64(minus(end, x.shard.shift(a))))
	}
}

// describeNow makes w describe the window.
func (x *access) describeNow(w *window.Window) {
	v := verdict{granted: true}
	if !x.entry.isNew() {
		v.count = x.algorithm().count(x.entry, x.now)
	}
	x.describe(w, v)
}

// undo undoes a take of n. The record may have been removed to make room.
func (x *access) undo(n uint64) {
	s := x.shard
	x.record = s.find(&x.id)
	switch {
	case x.record == nil || n == 0:
	case x.opened:
		t := s.windows.of(&x.id)
		s.drop(t, t.find(&x.id))
	case x.algorithm().logs:
		e := x.record.entry()
		s.log.shorten(&e, n)
		x.record.set(e)
	default:
		x.record.set(x.before)
	}
	s.firstEnd = math.MinInt64 // a window ends earlier
}
