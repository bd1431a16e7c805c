package memory

import (
	"math"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// access is the use of one window by a call. The mutex of the shard is held.
type access struct {
	shard  *shard
	id     windowID // of the record that counts for the key
	record *record  // nil: none
	owner  bool     // this access holds the record, and no other one of the call
	state  state    // new if there is no active window
	instant

	before state // of a take of several, before it
	opened bool  // there was no record
}

func (x *access) algorithm() *algorithm { return &algorithms[x.id.kind.algorithm()] }

// begin prepares the shard for the accesses of a call, which may add two records for each: its own, and a shared
// one. The mutex of the shard is held.
func (s *shard) begin(b *Backend, accesses, text int) error {
	if s.closed {
		return window.ErrClosed
	}
	s.calls++
	s.reserve(b, 2*accesses, text)
	return nil
}

// load finds the record that counts for the key, holds it, and reads it. The state is new if there is none, or
// the window is not active.
func (x *access) load(b *Backend) {
	s := x.shard
	if x.record == nil {
		r := s.find(&x.id)
		if r == nil && x.id.kind&shared == 0 {
			r = s.findShared(b, &x.id)
		}
		x.hold(r)
	}
	x.now, x.ref = s.now(b)
	x.now += x.ref.shift(x.algorithm())
	x.read()
}

// read reads the record, at the time of load.
func (x *access) read() {
	s, a := x.shard, x.algorithm()
	if x.record != nil {
		x.state = x.record.state()
		if a.logs {
			s.log.trim(&x.state, x.now)
			x.record.set(x.state)
		}
		if !x.state.isNew() && a.active(x.state, x.now) {
			return
		}
	}
	x.state = state{scale: x.id.scale}
}

// hold makes r, which may be nil, the record of the access. Calls that have found the record without the shard's
// mutex wait for its release, and nobody removes it.
func (x *access) hold(r *record) {
	if x.record = r; r != nil && !r.held {
		r.mu.Lock()
		r.held, x.owner = true, true
		x.shard.count(r)
	}
}

// release ends the access.
func (x *access) release() {
	if x.owner {
		x.record.held, x.owner = false, false
		x.record.mu.Unlock()
	}
	x.record = nil
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

func ruleOf(l *window.Limit) rule { return rule{l.Max, limits.Capacity(*l)} }

// take makes a take.
func (x *access) take(b *Backend, r rule, n uint64) (v verdict, err error) {
	before := x.state
	if x.state, v = x.algorithm().take(x.shard, x.state, x.instant, r, n); !v.changed {
		return v, nil
	}
	if err = x.store(b, n); err == b.errLogs {
		// There is no room for its times in the logs.
		x.state = before
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
		x.state, n = a.charge(x.shard, x.state, x.instant, r, n)
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
		if !x.state.isNew() {
			n -= min(n, a.count(x.state, x.now))
		}
	} else if x.record != nil {
		s.endWindow(b, &x.id, x.record)
		if x.state = (state{scale: x.id.scale}); x.record.dead {
			x.release()
		}
	}
	return x.charge(b, r, n, w)
}

// peek decides on a take, and makes w describe the window without it.
func (x *access) peek(r rule, n uint64, w *window.Window) verdict {
	_, v := x.algorithm().take(x.shard, x.state, x.instant, r, n)
	before := v
	if v.granted {
		before.count -= min(n, v.count)
	}
	x.describe(w, before)
	return v
}

// giveBack gives n back to the window or take with an ID, and reports whether it has.
func (x *access) giveBack(id int64, n uint64) (ok bool) {
	if x.state.isNew() {
		return false
	}
	a := x.algorithm()
	if x.state, ok = a.giveBack(x.shard, x.state, x.instant, id, n); ok {
		x.record.set(x.state)
		x.shard.mayEnd(a, x.state, x.ref)
	}
	return ok
}

// store stores the state after n was added to it. If there is no record, it inserts one, and makes
// room for it if necessary.
func (x *access) store(b *Backend, n uint64) (err error) {
	s, a := x.shard, x.algorithm()
	if x.record == nil {
		r, err := b.recordFor(s, &x.id)
		if err != nil {
			return err
		}
		x.hold(r)
	}
	if x.state.isNew() {
		s.renew(&x.state)
	}
	if a.logs {
		if err = x.log(b, n); err != nil {
			return err
		}
	}
	x.record.set(x.state)
	s.mayEnd(a, x.state, x.ref)
	return nil
}

// renew gives e the next generation. The mutex is held.
func (s *shard) renew(e *state) {
	s.generation++
	e.setGeneration(uint64(s.generation * 0x9e3779b1 >> (generationShift - 32))) // so that near ones differ by much
}

// mayEnd notes when the window of e ends. The mutex is held.
func (s *shard) mayEnd(a *algorithm, e state, ref *reference) {
	s.firstEnd = min(s.firstEnd, int64(minus(a.end(e), ref.shift(a))))
}

// end returns when the window ends, if that is after now, and now otherwise.
func (x *access) end() int64 {
	if a := x.algorithm(); !x.state.isNew() && a.active(x.state, x.now) {
		return a.end(x.state)
	}
	return x.now
}

// describe makes w describe the window after a take.
func (x *access) describe(w *window.Window, v verdict) {
	*w = window.Window{Count: v.count, Refused: !v.granted, RetryAfter: v.wait}
	if end := x.end(); end > x.now {
		a := x.algorithm()
		w.Left, w.ID = minus(end, x.now), a.id(x.state)
		w.ExpiresAt = x.ref.timeOf(int64(minus(end, x.ref.shift(a))))
	}
}

// describeNow makes w describe the window.
func (x *access) describeNow(w *window.Window) {
	v := verdict{granted: true}
	if !x.state.isNew() {
		v.count = x.algorithm().count(x.state, x.now)
	}
	x.describe(w, v)
}

// undo undoes a take of n.
func (x *access) undo(n uint64) {
	s := x.shard
	switch {
	case x.record == nil || n == 0:
	case x.opened:
		s.drop(x.record)
	case x.algorithm().logs:
		e := x.record.state()
		s.log.shorten(&e, n)
		x.record.set(e)
	default:
		x.record.set(x.before)
	}
	s.firstEnd = math.MinInt64 // a window ends earlier
}
