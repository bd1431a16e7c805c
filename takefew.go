package throttr

import (
	"context"
	"sync"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// fewTakes is up to how many takes TakeAll does not allocate for.
const fewTakes = 4

// takeFew is a call of the first store that nobody observes. What it has would be allocated otherwise.
type takeFew struct {
	takes   [fewTakes]Take
	windows [fewTakes]window.Window
	granted bool
	denied  bool // the windows say which of them was refused; if not, all were, or none
}

var fewPool = sync.Pool{New: func() any { return new(takeFew) }}

// decidesFew reports whether a takeFew can make n takes.
func (r *RateLimit) decidesFew(n int) bool {
	return r.observer == nil && n > 0 && n <= fewTakes
}

// prepare sets the algorithm of the i-th take, and reports whether the backend can decide it with those before.
func (f *takeFew) prepare(r *RateLimit, i int) bool {
	t := &f.takes[i]
	t.Limit.Algorithm = r.algorithmOf(&t.Limit) // not resolved: the copy would take as long as the take
	if !decidable(&t.Limit, t.N) {
		return false
	}
	for j := range i {
		if limits.SameCount(t, &f.takes[j]) {
			return false
		}
	}
	return true
}

// decidable reports whether a take is valid, and is decided by a backend.
func decidable(l *Limit, n uint64) bool {
	return l.Max-1 < Unlimited-1 && !l.Shadow && n <= limits.Capacity(*l) && take.check(l, n) == nil
}

// take makes the first n takes. If that fails, f must not be used again: the backend may still do.
func (f *takeFew) take(ctx context.Context, r *RateLimit, n int) (granted bool, err error) {
	if f.granted, err = r.first.takeAll(ctx, f.takes[:n], f.windows[:n]); err == nil {
		f.denied = anyRefused(f.windows[:n])
	}
	return f.granted, err
}

// result sets the result of the i-th take, which is zero.
func (f *takeFew) result(i int, res *Result) {
	w := &f.windows[i]
	res.setWindow(&f.takes[i].Limit, w, f.granted || f.denied && !w.Refused)
}
