package throttr

import (
	"context"
	"slices"
	"sync"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// TakeAll makes all takes, or none of them if one is denied: then denied traffic of one limit uses up nothing of the
// others. The results are those of the takes, in their order. If ok is false, Allowed says of each take whether its
// limit would have granted it, and nothing was counted. Takes of one count (key, and the limit's Name, Scale,
// Algorithm, Calendar, Zone and StartDay) are one take of their sum, under the lowest Max and Burst.
//
// If a limit can never grant its take, no store is asked, and the results of the others have no Count.
// Without takes, TakeAll returns true.
func (r *RateLimit) TakeAll(ctx context.Context, takes ...Take) (ok bool, results []Result, err error) {
	// TakeAll is inlined, so that the results are on the caller's stack if it does not keep them.
	return r.takeAll(ctx, takes, make([]Result, 0, fewTakes))
}

// fewTakes is how many takes most calls make at most.
const fewTakes = 3

var takings = sync.Pool{New: func() any { return &taking{room: new(room)} }}

// takeAll is TakeAll. It appends the results to a slice. The takes of the caller are copied, as those that a backend
// gets would be allocated.
func (r *RateLimit) takeAll(ctx context.Context, takes []Take, results []Result) (ok bool, _ []Result, err error) {
	t := takings.Get().(*taking)
	t.takes = t.room.takes[:0]
	t.results = t.room.results[:0]
	t.begin(take.String(), takes)
	if err := r.decideAll(ctx, t); err != nil {
		return false, nil, err
	}
	granted := t.granted
	results = append(results, t.results...)
	t.end()
	return granted, results, nil
}

// end makes room for another call, unless a backend has failed.
func (t *taking) end() {
	if !t.failed {
		*t.room = room{}
		*t = taking{room: t.room}
		takings.Put(t)
	}
}

// taking is a call that makes several takes.
type taking struct {
	call  string
	waits bool
	takes []Take // with their algorithms

	outcome // of the merged takes
	granted bool
	failed  bool // a backend has, perhaps in an earlier attempt, and may still use the takes and the windows
	inVain  bool // a wait that fails at once, with a CostError or a DeadlineError: a denial
	results []Result

	merged  []Take // those of the takes that a store must decide: one for each count
	index   []int  // of takes in merged, and, after these, of shadow takes in shadows; see indexOf
	decided decided

	shadows []taking // of those of the takes whose limits are Shadow, once the others are granted
	of      int      // of one of them: which of the takes it is

	room *room // nil: of a shadow take
}

// room is for what few takes need.
type room struct {
	takes   [fewTakes]Take
	results [fewTakes]Result
	windows [fewTakes]window.Window
}

// indexOf returns the index of a take by a list of them. It is -1 if no store decides the take. A nil list is for takes
// that all have their own index.
func indexOf(list []int, take int) int {
	if list == nil {
		return take
	}
	return list[take]
}

// decided is what a backend has decided.
type decided struct {
	by      Backend         // nil if none was asked, or a policy has decided
	takes   []Take          // the merged takes, or the shares of this process in their limits
	windows []window.Window // of these
}

// begin makes t, which has nothing but room, a call that makes takes.
func (t *taking) begin(call string, takes []Take) {
	t.call = call
	t.takes = append(t.takes, takes...)
	t.decided.windows = t.room.windows[:0]
}

// merge makes those of the takes that a store must decide one for each count, and sets the results of the others.
func (t *taking) merge() {
	limited := t.takes
	if slices.ContainsFunc(limited, notLimited) {
		limited = slices.DeleteFunc(slices.Clone(limited), notLimited)
	}
	merged, index := limits.Merge(limited)
	t.merged = merged
	t.results = append(t.results, make([]Result, len(t.takes))...)
	if len(merged) == len(t.takes) {
		return
	}
	t.index = make([]int, len(t.takes))
	next := 0
	for i := range t.takes {
		x := &t.takes[i]
		at := -1
		switch {
		case x.Limit.Shadow:
			t.results[i] = Result{Allowed: true, Limit: limits.Capacity(&x.Limit)}
		case x.Limit.Max == Unlimited:
			take.local(&x.Limit, x.N, &t.results[i])
		case index == nil:
			at = next
			next++
		default:
			at = index[next]
			next++
		}
		t.index[i] = at
	}
}

// notLimited reports whether no store decides a take.
func notLimited(t Take) bool { return t.Limit.Max == Unlimited || t.Limit.Shadow }

// setResults sets the result of each take that has been merged to that of its merged take, which has an index. Merged
// is that of t, or the shares.
func (t *taking) setResults(merged []Take, of func(m *Take, at int) Result) {
	for i := range t.results {
		if at := indexOf(t.index, i); at >= 0 {
			t.results[i] = of(&merged[at], at)
		}
	}
}

// never sets the results if one of the limits can never grant its take, and reports whether one can't.
func (t *taking) never(merged []Take) (never bool) {
	var res Result
	for i := range merged {
		never = take.local(&merged[i].Limit, merged[i].N, &res) || never
	}
	if never {
		t.setResults(merged, func(m *Take, _ int) (res Result) {
			if !take.local(&m.Limit, m.N, &res) {
				res = Result{Allowed: true, Limit: limits.Capacity(&m.Limit)}
			}
			return res
		})
	}
	return never
}

// takeFrom makes the merged takes, or shares of them, of a backend.
func (t *taking) takeFrom(ctx context.Context, b Backend, takes []Take) (err error) {
	n := len(takes)
	windows := slices.Grow(t.decided.windows[:0], n)[:n]
	clear(windows) // of an earlier call
	if n == 1 {
		m := &takes[0]
		windows[0], err = b.Take(ctx, m.Key, m.Limit, m.N)
		t.granted = err == nil && !windows[0].Refused
	} else {
		t.granted, err = b.TakeAll(ctx, takes, windows)
	}
	if err != nil {
		t.granted = false
		t.failed = true
		t.decided = decided{} // the backend may still use the windows
		return err
	}
	t.decided = decided{by: b, takes: takes, windows: windows}
	some := slices.ContainsFunc(windows, func(w window.Window) bool { return w.Refused }) // or all were denied
	t.setResults(takes, func(m *Take, at int) (res Result) {
		w := &windows[at]
		res.setWindow(&m.Limit, w, t.granted || some && !w.Refused)
		return res
	})
	return nil
}

// takeShare makes the merged takes of the fallback of r, from this process's share of the limits.
func (t *taking) takeShare(ctx context.Context, r *RateLimit) error {
	shares := slices.Clone(t.merged)
	for i := range shares {
		shares[i].Limit = r.share(shares[i].Limit)
	}
	if t.never(shares) {
		return nil
	}
	return t.takeFrom(ctx, r.fallback, shares)
}
