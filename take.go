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

// fewTakes is up to how many takes TakeAll does not allocate for.
const fewTakes = 4

// takeEach is TakeAll. It returns the results in a slice, if that has room for them.
func (r *RateLimit) takeEach(ctx context.Context, takes []Take, results []Result) (ok bool, _ []Result, err error) {
	n := len(takes)
	if r.fast == nil || !r.fast.Local || n > fewTakes {
		return r.takeAny(ctx, takes)
	}
	few := fewPool.Get().(*takeFew)
	defer fewPool.Put(few)
	for i := range takes {
		t := &few.takes[i]
		*t = takes[i]
		t.Limit.Algorithm = r.algorithmOf(&t.Limit) // not resolved: the copy would take as long as the take
		if t.N == 0 || t.Limit.Name != "" || t.Limit.Burst != 0 || !r.isFast(t.Limit.Algorithm, t.Limit.Max, t.Limit.Scale, t.N) {
			return r.takeAny(ctx, takes)
		}
		for j := range i {
			if limits.SameCount(t, &few.takes[j]) {
				return r.takeAny(ctx, takes)
			}
		}
	}
	granted, err := r.backend.TakeAll(ctx, few.takes[:n], few.windows[:n])
	if err != nil {
		t := taking{call: "take", takes: slices.Clone(takes), failed: err}
		err = r.takeAll(ctx, &t)
		return t.granted, t.results, err
	}
	results = results[:n]
	denied := anyRefused(few.windows[:n])
	for i := range n {
		w := &few.windows[i]
		results[i].set(&few.takes[i].Limit, w, granted || denied && !w.Refused)
	}
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

// takeFew is the arguments of a call of a backend, which would be allocated otherwise.
type takeFew struct {
	takes   [fewTakes]Take
	windows [fewTakes]window.Window
}

var fewPool = sync.Pool{New: func() any { return new(takeFew) }}

// takeAny is TakeAll for any takes and backend.
func (r *RateLimit) takeAny(ctx context.Context, takes []Take) (ok bool, results []Result, err error) {
	// Not takes itself: the interface call would make every caller allocate it.
	t := taking{call: "take", takes: slices.Clone(takes)}
	err = r.takeAll(ctx, &t)
	return t.granted, t.results, err
}

// taking is a call that makes several takes.
type taking struct {
	call   string
	takes  []Take // with their algorithms
	failed error  // the backend has failed with it already; or nil

	granted bool
	results []Result // of takes

	merged  []Take          // those of the takes that a store must decide: one for each count
	index   []int           // of takes in merged; -1: none
	windows []window.Window // of merged, by the backend that has decided
	store   *store          // which has decided; nil if none was asked, or a policy has decided
}

// takeAll makes the takes of t, and reports the decisions to the observer.
func (r *RateLimit) takeAll(ctx context.Context, t *taking) error {
	for i := range t.takes {
		x := &t.takes[i]
		x.Limit = r.resolved(x.Limit)
		if err := take.check(&x.Limit, x.N); err != nil {
			return callError(t.call, x.Key, err)
		}
	}
	begun := time.Now()
	cause, err := r.takeMerged(ctx, t)
	if r.observer != nil {
		r.observeTakes(ctx, t, time.Since(begun), cause, err)
	}
	return err
}

// takeMerged decides the takes of t. The cause is the error of the backend, whatever the decision is.
func (r *RateLimit) takeMerged(ctx context.Context, t *taking) (cause, err error) {
	t.merge()
	t.results = make([]Result, len(t.takes))
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
	r.watch.decided(t.granted, cause)
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
				*res = Result{Allowed: true, Limit: limits.Holds(m.Limit)}
			}
		})
	}
	return never
}

// merge makes those of the takes that a store must decide one for each count.
func (t *taking) merge() {
	limited := make([]Take, 0, len(t.takes))
	for _, x := range t.takes {
		if x.Limit.Max != Unlimited {
			limited = append(limited, x)
		}
	}
	var of []int
	t.merged, of = limits.Merge(limited)
	t.index = make([]int, len(t.takes))
	next := 0
	for i, x := range t.takes {
		t.index[i] = -1
		if x.Limit.Max == Unlimited {
			continue
		}
		if t.index[i] = next; of != nil {
			t.index[i] = of[next]
		}
		next++
	}
}

// setResults sets the result of each take with that of its merged take.
func (t *taking) setResults(set func(m *Take, i int, res *Result)) {
	for i := range t.takes {
		if at := t.index[i]; at >= 0 {
			set(&t.merged[at], at, &t.results[i])
		} else {
			t.results[i].local(&t.takes[i].Limit, t.takes[i].N)
		}
	}
}

// takeFrom makes the merged takes of the backend of a store.
func (r *RateLimit) takeFrom(ctx context.Context, s *store, t *taking) error {
	windows, granted := make([]window.Window, len(t.merged)), false
	err := s.doAll(ctx, "take", t.merged, func(ctx context.Context) (err error) {
		if len(t.merged) == 1 {
			m := &t.merged[0]
			windows[0], err = s.backend.Take(ctx, m.Key, m.Limit, m.N)
			granted = err == nil && !windows[0].Refused
			return err
		}
		granted, err = s.backend.TakeAll(ctx, t.merged, windows)
		return err
	})
	if err != nil {
		return err
	}
	t.granted, t.windows, t.store = granted, windows, s
	denied := anyRefused(windows)
	t.setResults(func(m *Take, i int, res *Result) {
		res.set(&m.Limit, &windows[i], granted || denied && !windows[i].Refused)
	})
	return nil
}

// takeShare makes the merged takes of the fallback, from this process's share of the limits.
func (r *RateLimit) takeShare(ctx context.Context, t *taking) error {
	whole := slices.Clone(t.merged)
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
		if err == nil && !t.granted && t.results[i].Allowed {
			continue // not counted, because another limit has denied
		}
		r.observe(ctx, Event{Call: t.call, Key: x.Key, Limit: x.Limit, N: x.N, Result: t.results[i], Duration: took, Err: cause}, err)
	}
}
