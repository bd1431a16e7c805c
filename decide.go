package throttr

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Every decision is made here, in this order:
//
//  1. The limit gets its algorithm.
//  2. The limit and n are checked: a mistake is an error.
//  3. What needs no store is decided: the limit is Unlimited, or can never grant so much.
//  4. The store is asked, through its guard; that of memory has none: see guarded.
//  5. If it has failed: the fallback is asked for its share, or the policy decides. That is failover, in policy.go.
//  6. The observer is told.
//  7. A Shadow limit allows, whatever was decided.
//
// That of Hit, HitN, Take and Charge is decide. That of several takes is decideAll, for TakeAll, Reserve, Wait and
// WaitAll: a wait asks again and again, when its turn has come. Of several, steps 4 and 5 are answerAll.

// Hit counts one hit in key's window of the given scale, and returns whether the count is within limit:
// denied hits count, too, but a backend need not count hits on a window that is over its limit. A limit of
// 0 denies every hit, and counts none.
func (r *RateLimit) Hit(ctx context.Context, key string, scale time.Duration, limit uint64) (res Result, err error) {
	l := Limit{Max: limit, Scale: scale}
	err = r.decide(ctx, hit, key, &l, 1, &res)
	return res, err
}

// HitN counts n as one hit, which is allowed or denied as a whole. A hit that is larger than the limit can
// never be allowed: it is denied, no store is asked, and it counts nothing. An n of 0 opens a window if there is
// none, and counts nothing.
func (r *RateLimit) HitN(ctx context.Context, key string, limit Limit, n uint64) (res Result, err error) {
	err = r.decide(ctx, hit, key, &limit, n, &res)
	return res, err
}

// Take counts n if the count stays within the limit, and nothing otherwise. So, unlike a hit that is
// denied, a take that is denied costs nothing: at 8 of 10, a take of 5 is denied, and then a take of 2 is
// granted. An n of 0 is [ErrRange]: see [RateLimit.Peek].
func (r *RateLimit) Take(ctx context.Context, key string, limit Limit, n uint64) (res Result, err error) {
	err = r.decide(ctx, take, key, &limit, n, &res)
	return res, err
}

// Charge counts n whatever the limit says: what has happened already, such as the bytes of a response. It
// is never an error that the limit is exceeded; Allowed says whether it is not. A count that would pass
// the largest that the backend can store stays there. A token bucket owes at most its burst. An n of 0 is
// [ErrRange].
func (r *RateLimit) Charge(ctx context.Context, key string, limit Limit, n uint64) (res Result, err error) {
	err = r.decide(ctx, charge, key, &limit, n, &res)
	return res, err
}

// Peek returns what [RateLimit.Take] would return now, but counts nothing: Count and Remaining are without
// n. With an n of 0 it describes the window. If there is none, ResetAt is zero. No policy applies. Another
// caller may take what Peek has seen.
func (r *RateLimit) Peek(ctx context.Context, key string, limit Limit, n uint64) (res Result, err error) {
	r.resolve(&limit)
	if err := peek.check(&limit, n); err != nil {
		return res, callError(peek.String(), key, err)
	}
	shadow := limit.Shadow
	limit.Shadow = false
	if n == 0 && limit.Max != Unlimited || !take.local(&limit, n, &res) {
		var w window.Window
		if w, err = r.store.Peek(ctx, key, limit, n); err == nil {
			res.setWindow(&limit, &w, !w.Refused)
			if limit.Max == 0 { // no take is granted, whatever the window is
				res.Allowed, res.RetryAfter = false, Never
			}
		}
	}
	if shadow {
		res.pass(&limit, err)
		err = nil
	}
	return res, err
}

// verb is what a call does with n of a limit.
type verb uint8

const (
	hit verb = iota
	take
	charge
	peek    // in checks only
	reserve // takes that are settled later
	wait    // the same, when it is their turn
)

// String returns the name of the call.
func (v verb) String() string {
	return [...]string{"hit", "take", "charge", "peek", "reserve", "wait"}[v]
}

// call makes a call of a backend, and sets res, which is zero, to the decision.
func (v verb) call(ctx context.Context, b Backend, key string, l *Limit, n uint64, res *Result) error {
	var w window.Window
	var err error
	switch v {
	case hit:
		w, err = b.Hit(ctx, key, *l, n)
	case charge:
		w, err = b.Charge(ctx, key, *l, n)
	default:
		w, err = b.Take(ctx, key, *l, n)
	}
	if err == nil {
		res.setWindow(l, &w, v.allowed(l, &w))
	}
	return err
}

// allowed returns the decision of a backend on a call that leaves the window w. What is Refused was not
// counted. Fixed windows may count hits that are denied, too, and count all charges.
func (v verb) allowed(l *Limit, w *window.Window) bool {
	switch {
	case w.Refused:
		return false
	case v == take, w.Count <= limits.Capacity(l):
		return true
	}
	return v == hit && l.Algorithm.Rolling() // which is a take
}

// setWindow sets r, which is zero, to a decision that leaves the window w.
func (r *Result) setWindow(l *Limit, w *window.Window, allowed bool) {
	r.Allowed = allowed
	r.Count = w.Count
	r.Limit = limits.Capacity(l)
	r.ResetAfter = w.Left
	r.ResetAt = w.ExpiresAt
	if r.Count < r.Limit {
		r.Remaining = r.Limit - r.Count
	}
	if !allowed {
		r.RetryAfter = cmp.Or(w.RetryAfter, w.Left)
		if r.RetryAfter == 0 {
			r.RetryAfter = limits.Left(l, time.Now())
		}
	}
}

// errZero is the error of a call that counts, and would count nothing.
var errZero error = &RangeError{Field: "N", Value: "0", Bound: "at least 1"}

// check returns the error of a call that must not be made.
func (v verb) check(l *Limit, n uint64) error {
	if err := limits.Check(l); err != nil {
		return err
	}
	if n == 0 && v != hit && v != peek {
		return errZero
	}
	return limits.CheckNumber("N", n)
}

// local sets res to the decision on n of a limit, and returns true, if no store is needed for it: the limit is
// Unlimited, or can never grant so much. A charge is never too large.
func (v verb) local(l *Limit, n uint64, res *Result) bool {
	switch holds := limits.Capacity(l); {
	case l.Max == Unlimited:
		*res = Result{Allowed: true, Limit: Unlimited, Remaining: Unlimited}
	case v != charge && (n > holds || l.Max == 0):
		*res = Result{Limit: holds, RetryAfter: Never}
	default:
		return false
	}
	return true
}

// resolve gives a limit its algorithm.
func (r *RateLimit) resolve(l *Limit) {
	switch {
	case l.Algorithm != 0:
	case l.Calendar != 0:
		l.Algorithm = CalendarWindow
	default:
		l.Algorithm = r.algorithm
	}
}

// decide makes a call, and sets res, which is zero. The limit is the copy of the method that was called, and is
// changed.
func (r *RateLimit) decide(ctx context.Context, v verb, key string, l *Limit, n uint64, res *Result) error {
	r.resolve(l)
	if err := v.check(l, n); err != nil {
		return callError(v.String(), key, err)
	}
	var begun time.Time
	if r.observer != nil {
		begun = time.Now()
	}
	shadow := l.Shadow
	if shadow { // a write for nothing would delay the copy of the limit that the store gets
		l.Shadow = false
	}
	var o outcome
	if !v.local(l, n, res) {
		if cause := v.call(ctx, r.store, key, l, n, res); cause != nil {
			o = r.failover(ctx, cause, func() error {
				share := r.share(*l)
				if v.local(&share, n, res) {
					return nil
				}
				return v.call(ctx, r.fallback, key, &share, n, res)
			})
			if o.by == thePolicy {
				*res = r.byPolicy(l)
			}
			if o.by != nobody {
				r.degrade(res, l)
				r.watch.Decided(res.Allowed, o.cause)
			}
		}
	}
	l.Shadow = shadow
	if r.observer != nil {
		e := Event{Call: v.String(), Key: key, Limit: *l, N: n, Result: *res, Duration: time.Since(begun), Err: o.cause}
		r.observe(ctx, e, o.err)
	}
	if shadow {
		res.pass(l, o.err)
		return nil
	}
	return o.err
}

// pass makes r, which is of a call of a shadow limit that has returned err, a decision that allows.
func (r *Result) pass(l *Limit, err error) {
	if err != nil {
		*r = Result{Degraded: true, Limit: limits.Capacity(l)}
	}
	r.Allowed, r.RetryAfter = true, 0
}

// decideAll makes the takes of t.
func (r *RateLimit) decideAll(ctx context.Context, t *taking) error {
	for i := range t.takes {
		x := &t.takes[i]
		r.resolve(&x.Limit)
		if err := take.check(&x.Limit, x.N); err != nil {
			return callError(t.call, x.Key, err)
		}
	}
	var begun time.Time
	if r.observer != nil {
		begun = time.Now()
	}
	t.merge()
	r.decideMerged(ctx, t)
	if t.granted {
		r.decideShadows(ctx, t)
	}
	if r.observer != nil {
		r.observeTakes(ctx, t, time.Since(begun))
	}
	return t.err
}

// decideMerged decides the merged takes of t, all or none, at once or when it is their turn.
func (r *RateLimit) decideMerged(ctx context.Context, t *taking) {
	never := t.never(t.merged)
	switch {
	case len(t.merged) == 0:
		t.granted = true
	case t.waits:
		t.err = r.awaitTurn(ctx, t, never)
	case !never:
		r.answerAll(ctx, t)
	}
}

// answerAll decides the merged takes of t by the store, the fallback, or the policy.
func (r *RateLimit) answerAll(ctx context.Context, t *taking) {
	t.outcome = outcome{}
	cause := t.takeFrom(ctx, r.store, t.merged)
	if cause == nil {
		return
	}
	t.outcome = r.failover(ctx, cause, func() error { return t.takeShare(ctx, r) })
	switch t.outcome.by {
	case nobody:
		return
	case thePolicy:
		t.granted = r.policy == AllowHits
		t.setResults(t.merged, func(m *Take, _ int) Result { return r.byPolicy(&m.Limit) })
	}
	for i := range t.results {
		if indexOf(t.index, i) >= 0 {
			r.degrade(&t.results[i], &t.takes[i].Limit)
		}
	}
	r.watch.Decided(t.granted, t.cause)
}

// decideShadows makes the takes of shadow limits, each for itself and all at one time: they deny nothing.
func (r *RateLimit) decideShadows(ctx context.Context, t *taking) {
	for i, x := range t.takes {
		if x.Limit.Shadow {
			x.Limit.Shadow = false
			t.index[i] = len(t.merged) + len(t.shadows)
			t.shadows = append(t.shadows, taking{call: t.call, takes: []Take{x}, of: i})
		}
	}
	if t.shadows == nil {
		return
	}
	inParallel(len(t.shadows), func(i int) {
		s := &t.shadows[i]
		s.merge()
		r.decideMerged(ctx, s)
		res := s.results[0]
		res.pass(&s.takes[0].Limit, s.err)
		t.results[s.of] = res
	})
}

// inParallel calls f with 0 to n-1, in goroutines if there are several, and returns when all have returned. If one
// panics, such as a backend or an observer of the program, inParallel does.
func inParallel(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var all sync.WaitGroup
	panics := make([]any, n)
	for i := range n {
		all.Go(func() {
			defer func() { panics[i] = recover() }()
			f(i)
		})
	}
	all.Wait()
	if p := cmp.Or(panics...); p != nil {
		panic(p)
	}
}

// observeTakes reports takes: if they are granted, each of them, and otherwise those that were denied or
// have failed.
func (r *RateLimit) observeTakes(ctx context.Context, t *taking, took time.Duration) {
	for i, x := range t.takes {
		if x.Limit.Shadow || !t.granted && t.results[i].Allowed {
			continue // not counted, because another limit has denied
		}
		e := Event{Call: t.call, Key: x.Key, Limit: x.Limit, N: x.N, Result: t.results[i], Duration: took, Err: t.cause}
		if t.inVain {
			e.Kind = EventDenied
			e.Err = t.err
			r.observe(ctx, e, nil)
			continue
		}
		r.observe(ctx, e, t.err)
	}
	for i := range t.shadows {
		s := &t.shadows[i]
		x := &t.takes[s.of]
		r.observe(ctx, Event{Call: t.call, Key: x.Key, Limit: x.Limit, N: x.N, Result: s.results[0], Duration: took,
			Err: s.cause}, s.err)
	}
}
