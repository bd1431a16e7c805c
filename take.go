package throttr

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// TakeAll makes all takes, or none of them if one is denied: then denied traffic of one limit uses up
// nothing of the others. The results are those of the takes, in their order. If ok is false, Allowed says
// of each take whether its limit would have granted it, and nothing was counted. Takes of one count (key,
// and the limit's Name, Scale and Algorithm) are one take of their sum, under the lowest Max and Burst.
//
// If a limit can never grant its take, no store is asked, and the results of the others have no Count.
// Without takes, TakeAll returns true.
func (r *RateLimit) TakeAll(ctx context.Context, takes ...Take) (ok bool, results []Result, err error) {
	// TakeAll is inlined, so that the results are on the caller's stack if it does not keep them.
	return r.takeEach(ctx, takes, make([]Result, 0, fewTakes))
}

// takeEach is TakeAll. It returns the results in a slice, if that has room for them.
func (r *RateLimit) takeEach(ctx context.Context, takes []Take, results []Result) (ok bool, _ []Result, err error) {
	n := len(takes)
	if !r.decidesFew(n) {
		return r.takeSlowly(ctx, takes, nil)
	}
	few := fewPool.Get().(*takeFew)
	for i := range takes {
		if few.takes[i] = takes[i]; !few.prepare(r, i) {
			return r.takeSlowly(ctx, takes, nil)
		}
	}
	granted, err := few.take(ctx, r, n)
	if err != nil {
		return r.takeSlowly(ctx, takes, err) // few is not used again: the backend may still do
	}
	results = results[:n]
	for i := range n {
		few.result(i, &results[i])
	}
	fewPool.Put(few)
	return granted, results, nil
}

// anyRefused reports whether the windows of takes say which of them was refused. If not, all were, or none.
func anyRefused(windows []window.Window) bool {
	for i := range windows {
		if windows[i].Refused {
			return true
		}
	}
	return false
}

// takeSlowly is TakeAll for any takes and backend. The backend has failed with an error already, or it is nil.
func (r *RateLimit) takeSlowly(ctx context.Context, takes []Take, failed error) (ok bool, results []Result, err error) {
	t := taking{call: "take", failed: failed}
	t.copy(takes)
	err = r.takeAll(ctx, &t)
	return t.granted, t.results, err
}

// taking is a call that makes several takes.
type taking struct {
	call   string
	takes  []Take // with their algorithms
	asked  time.Time
	failed error // the backend has failed with it already; or nil
	inVain bool  // a wait that fails at once, with a CostError or a DeadlineError: a denial

	granted bool
	results []Result // of takes

	merged  []Take          // those of the takes that a store must decide: one for each count
	index   []int           // of takes in merged; -1: none
	windows []window.Window // of merged, by the backend that has decided
	store   *store          // which has decided; nil if none was asked, or a policy has decided

	shadows []shadowTake // of those of the takes whose limits are Shadow, once the others are granted

	one struct { // what takes, results and windows of a single take are in: allocated at once
		take   [1]Take
		result [1]Result
		window [1]window.Window
	}
}

// copy sets the takes of t to a copy. An interface call would make every caller allocate those that it has.
func (t *taking) copy(takes []Take) {
	t.makeTakes(len(takes))
	copy(t.takes, takes)
}

// makeTakes sets the takes of t to n that are zero.
func (t *taking) makeTakes(n int) {
	if t.takes = t.one.take[:]; n != 1 {
		t.takes = make([]Take, n)
	}
}

// takeAll makes the takes of t, and reports the decisions to the observer.
func (r *RateLimit) takeAll(ctx context.Context, t *taking) error {
	if err := r.prepare(t); err != nil {
		return err
	}
	begun := time.Now()
	t.asked = begun
	cause, err := r.takeMerged(ctx, t)
	if t.granted {
		r.takeShadows(ctx, t)
	}
	if r.observer != nil {
		r.observeTakes(ctx, t, time.Since(begun), cause, err)
	}
	return err
}

// prepare sets the algorithms of the takes of t, and returns the error of one that must not be made.
func (r *RateLimit) prepare(t *taking) error {
	for i := range t.takes {
		x := &t.takes[i]
		x.Limit = r.resolved(x.Limit)
		if err := take.check(&x.Limit, x.N); err != nil {
			return callError(t.call, x.Key, err)
		}
	}
	return nil
}

// takeMerged decides the takes of t. The cause is the error of the backend, whatever the decision is.
func (r *RateLimit) takeMerged(ctx context.Context, t *taking) (cause, err error) {
	if t.index == nil {
		t.merge()
	}
	if t.never() || len(t.merged) == 0 {
		t.granted = len(t.merged) == 0
		return nil, nil
	}
	if cause = t.failed; cause == nil {
		cause = r.takeFrom(ctx, r.first, t)
	}
	if cause == nil {
		return nil, nil
	}
	for i := 0; i < len(t.merged) && isOutage(ctx, cause); i++ { // as in instead
		m := &t.merged[i]
		if mistake := r.check(m.Limit); mistake != nil {
			cause = callError(t.call, m.Key, mistake)
		}
	}
	answered, cause, err := r.failover(ctx, cause, func() error { return r.takeShare(ctx, t) })
	switch {
	case err != nil:
		return cause, err
	case !answered:
		t.granted = r.policy == AllowHits
		t.setResults(func(m *Take, _ int, res *Result) { r.byPolicy(res, &m.Limit) })
	}
	for i := range t.results {
		if t.index[i] >= 0 {
			r.degrade(&t.results[i], &t.takes[i].Limit)
		}
	}
	r.watch.Decided(t.granted, cause)
	return cause, nil
}

// never sets the results if one of the limits can never grant its take, or if there are none, and reports
// whether it has.
func (t *taking) never() (never bool) {
	for i := range t.merged {
		var res Result
		never = res.local(&t.merged[i].Limit, t.merged[i].N) || never
	}
	if never || len(t.merged) == 0 {
		t.setResults(func(m *Take, _ int, res *Result) {
			if !res.local(&m.Limit, m.N) {
				*res = Result{Allowed: true, Limit: limits.Capacity(m.Limit)}
			}
		})
	}
	return never
}

// merge makes those of the takes that a store must decide one for each count.
func (t *taking) merge() {
	n := len(t.takes)
	if t.results = t.one.result[:]; n != 1 {
		t.results = make([]Result, n)
	}
	limited := t.takes
	if slices.ContainsFunc(limited, notLimited) {
		limited = slices.DeleteFunc(slices.Clone(limited), notLimited)
	}
	var of []int
	if t.merged, of = limits.Merge(limited); len(t.merged) == n && n <= len(inOrder) {
		t.index = inOrder[:n]
		return
	}
	t.index = make([]int, n)
	next := 0
	for i, x := range t.takes {
		t.index[i] = -1
		if notLimited(x) {
			continue
		}
		if t.index[i] = next; of != nil {
			t.index[i] = of[next]
		}
		next++
	}
}

// notLimited reports whether no store decides a take.
func notLimited(t Take) bool { return t.Limit.Max == Unlimited || t.Limit.Shadow }

// inOrder is the index of takes that are all decided, each for itself.
var inOrder = [fewTakes]int{0, 1, 2, 3}

// setResults sets the result of each take with that of its merged take.
func (t *taking) setResults(set func(m *Take, i int, res *Result)) {
	for i := range t.takes {
		res, l := &t.results[i], &t.takes[i].Limit
		if at := t.index[i]; at >= 0 {
			set(&t.merged[at], at, res)
		} else if res.local(l, t.takes[i].N); l.Shadow {
			*res = Result{Allowed: true, Limit: limits.Capacity(*l)}
		}
	}
}

// takeFrom makes the merged takes of the backend of a store.
func (r *RateLimit) takeFrom(ctx context.Context, s *store, t *taking) error {
	if t.windows = t.one.window[:]; len(t.merged) != 1 {
		t.windows = make([]window.Window, len(t.merged))
	}
	var err error
	if t.granted, err = s.takeAll(ctx, t.merged, t.windows); err != nil {
		return err
	}
	t.store = s
	denied := anyRefused(t.windows)
	t.setResults(func(m *Take, i int, res *Result) {
		w := &t.windows[i]
		res.setWindow(&m.Limit, w, t.granted || denied && !w.Refused)
	})
	return nil
}

// takeShare makes the merged takes of the fallback, from this process's share of the limits.
func (r *RateLimit) takeShare(ctx context.Context, t *taking) error {
	whole := t.merged
	t.merged = slices.Clone(whole)
	for i := range t.merged {
		t.merged[i].Limit = r.share(t.merged[i].Limit)
	}
	if t.never() {
		return nil
	}
	err := r.takeFrom(ctx, r.second, t)
	if err != nil {
		t.merged = whole
	}
	return err
}

// observeTakes reports takes: if they are granted, each of them, and otherwise those that were denied or
// have failed.
func (r *RateLimit) observeTakes(ctx context.Context, t *taking, took time.Duration, cause, err error) {
	for i, x := range t.takes {
		if x.Limit.Shadow || !t.granted && t.results[i].Allowed {
			continue // not counted, because another limit has denied
		}
		e := Event{Call: t.call, Key: x.Key, Limit: x.Limit, N: x.N, Result: t.results[i], Duration: took, Err: cause}
		if t.inVain {
			e.Kind = EventDenied
			r.observe(ctx, e, nil)
			continue
		}
		r.observe(ctx, e, err)
	}
	for i := range t.shadows {
		s := &t.shadows[i]
		x := &t.takes[s.of]
		r.observe(ctx, Event{Call: t.call, Key: x.Key, Limit: x.Limit, N: x.N, Result: s.results[0], Duration: took, Err: s.cause}, s.err)
	}
}

// shadowTake is the take of a shadow limit.
type shadowTake struct {
	taking
	of         int // which of the takes it is
	cause, err error
}

// takeShadows makes the takes of shadow limits, each for itself and all at one time: they deny nothing.
func (r *RateLimit) takeShadows(ctx context.Context, t *taking) {
	for i, x := range t.takes {
		if x.Limit.Shadow {
			x.Limit.Shadow = false
			t.shadows = append(t.shadows, shadowTake{taking: taking{call: t.call, takes: []Take{x}}, of: i})
		}
	}
	if t.shadows == nil {
		return
	}
	inParallel(len(t.shadows), func(i int) {
		s := &t.shadows[i]
		s.cause, s.err = r.takeMerged(ctx, &s.taking)
		res := s.results[0]
		res.pass(&s.takes[0].Limit, s.err)
		t.results[s.of] = res
	})
}

// inParallel calls f with 0 to n-1, in goroutines if there are several, and returns when all have returned.
func inParallel(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
