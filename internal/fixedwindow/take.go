package fixedwindow

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/window"
)

// Take takes n of a window, if its count stays within limit. Sent reports whether a take that has
// failed may have been counted.
func (b *Backend[T]) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (w window.Window, granted, sent bool, err error) {
	size := codec.Size[T]()
	if err := cmp.Or(checkCount("limit", limit, size), checkCount("n", n, size)); err != nil {
		return w, false, false, err
	}
	if n == 0 {
		w, sent, err = b.Get(ctx, key, scale)
		return w, err == nil && w.Count <= limit, sent, err
	}
	r, sent, err := b.count(ctx, key, scale, coalesce.Hit{Limit: limit, Increment: n, Take: true})
	return windowOf(r), err == nil && !r.Refused, sent, err
}

// TakeAll makes all takes, or none of them if one is refused. It reads the windows first, unless
// they are known to have room. Then it makes one take after the other, in an order that is the same
// for all callers: so of those that want the same windows, one gets ahead. If one is refused after
// all, it gives back what it has taken. What can't be given back stays counted until the window
// ends.
func (b *Backend[T]) TakeAll(ctx context.Context, limits []window.Limit, windows []window.Window) (granted, sent bool, err error) {
	takes := takesOf(limits)
	defer func() {
		for _, t := range takes {
			for _, i := range t.indexes {
				windows[i] = t.window
			}
		}
	}()
	if fit, err := b.fit(ctx, takes); !fit || err != nil {
		return false, false, err
	}
	for i := range takes {
		t := &takes[i]
		t.window, granted, sent, err = b.Take(ctx, t.Key, t.Scale, t.Limit.Limit, t.N)
		if granted {
			continue
		}
		for j := range takes[:i] {
			b.undo(ctx, &takes[j])
		}
		return false, sent || err != nil && i > 0, err
	}
	return true, false, nil
}

// fit reports whether all takes fit their windows, as far as is known. If one does not, it has read
// all windows.
func (b *Backend[T]) fit(ctx context.Context, takes []take) (bool, error) {
	known := true
	for i := range takes {
		known = known && b.knownToFit(&takes[i])
	}
	if known && len(takes) > 0 {
		return true, nil
	}
	fit := true
	for i := range takes {
		t := &takes[i]
		if err := checkCount("limit", t.Limit.Limit, codec.Size[T]()); err != nil {
			return false, err
		}
		var err error
		if t.window, _, err = b.Get(ctx, t.Key, t.Scale); err != nil {
			return false, err
		}
		fit = fit && t.N <= t.Limit.Limit && t.window.Count <= t.Limit.Limit-t.N
	}
	return fit, nil
}

// knownToFit reports whether a take fits a window that is known to be open.
func (b *Backend[T]) knownToFit(t *take) bool {
	e := b.table.find(entryKey{t.Key, t.Scale})
	if e == nil || t.N > t.Limit.Limit {
		return false
	}
	s, ok := e.known.open(b.now())
	return ok && s.Count <= t.Limit.Limit-t.N
}

// undo gives back what a take of a TakeAll has taken, even if ctx has ended.
func (b *Backend[T]) undo(ctx context.Context, t *take) {
	if t.N == 0 {
		return
	}
	given, _, err := b.GiveBack(context.WithoutCancel(ctx), t.Key, t.Scale, t.window.ID, t.N)
	if given && err == nil {
		t.window.Count -= min(t.window.Count, t.N)
	}
}

// take is what a TakeAll takes of one window.
type take struct {
	window.Limit
	indexes []int // in the limits of TakeAll
	window  window.Window
}

// takesOf returns the takes of limits, of which some may have the same window, ordered by key and
// scale.
func takesOf(limits []window.Limit) (takes []take) {
	for i, l := range limits {
		k := slices.IndexFunc(takes, func(t take) bool { return t.Key == l.Key && t.Scale == l.Scale })
		if k < 0 {
			l.N = window.Total(limits, i)
			takes = append(takes, take{Limit: l, indexes: []int{i}})
			continue
		}
		takes[k].indexes = append(takes[k].indexes, i)
		takes[k].Limit.Limit = min(takes[k].Limit.Limit, l.Limit)
	}
	slices.SortFunc(takes, func(a, b take) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Scale, b.Scale))
	})
	return takes
}

// GiveBack gives n back to the window with an ID. It returns false if the window is over, if its
// connection has ended, or if it can't be told from a later one: then n stays counted.
func (b *Backend[T]) GiveBack(ctx context.Context, key string, scale time.Duration, id int64, n uint64) (given, sent bool, err error) {
	if err := checkCount("n", n, codec.Size[T]()); err != nil {
		return false, false, err
	}
	e, err := b.lookUpEntry(key, scale)
	if err != nil {
		return false, false, err
	}
	r, sent, err := e.coalescer.Exclusive(ctx, func(ctx context.Context) (r coalesce.Result, sent bool, err error) {
		given, err := e.windows.giveBack(ctx, id, n)
		r.Refused = !given
		return r, err != nil, err
	})
	if err != nil {
		return false, sent, queueError(err)
	}
	return !r.Refused, false, nil
}
