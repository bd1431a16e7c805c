package fixedwindow

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/slot"
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
		w, granted, err = b.read(ctx, key, scale, limit, 0)
		return w, granted, false, err
	}
	r, e, sent, err := b.count(ctx, key, scale, coalesce.Hit{Limit: limit, Increment: n, Take: true})
	w = windowOf(r)
	if err == nil && r.Refused && b.sliding() {
		w.Refused, w.RetryAfter = true, e.known.wait(limit, n, b.now())
	}
	return w, err == nil && !r.Refused, sent, err
}

// Peek returns what Take would return, but takes nothing.
func (b *Backend[T]) Peek(ctx context.Context, key string, scale time.Duration, limit, n uint64) (w window.Window, sent bool, err error) {
	if err := checkCount("limit", limit, codec.Size[T]()); err != nil {
		return w, false, err
	}
	w, fits, err := b.read(ctx, key, scale, limit, n)
	w.Refused = err == nil && !fits
	return w, false, err
}

// read reads the open window, and returns whether a take fits it. If it is a sliding one and the take does
// not, Refused is set.
func (b *Backend[T]) read(ctx context.Context, key string, scale time.Duration, limit, n uint64) (w window.Window, fits bool, err error) {
	e, err := b.lookUpEntry(key, scale)
	if err != nil {
		return w, false, err
	}
	if err := b.group.Check(ctx); err != nil {
		return w, false, err
	}
	r, wait, err := e.windows.peek(ctx, limit, n)
	w = windowOf(r)
	fits = err == nil && n <= limit && w.Count <= limit-n
	if err == nil && !fits && b.sliding() {
		w.Refused, w.RetryAfter = true, wait
	}
	return w, fits, err
}

// TakeAll makes all takes, or none of them if one is refused. If all windows are known, it makes
// them together, and otherwise in turn. What can't be given back stays counted until the window
// ends.
func (b *Backend[T]) TakeAll(ctx context.Context, limits []window.Limit, windows []window.Window) (granted, sent bool, err error) {
	if len(limits) == 0 {
		return true, false, nil
	}
	if err := b.group.Check(ctx); err != nil {
		return false, false, err
	}
	for i := range limits {
		if err := checkCount("limit", limits[i].Limit, codec.Size[T]()); err != nil {
			return false, false, err
		}
	}
	takes := b.takesOf(limits)
	defer func() {
		for _, t := range takes {
			for _, i := range t.indexes {
				windows[i] = t.window
			}
		}
	}()
	if done, granted, sent, err := b.takeTogether(ctx, takes); done {
		return granted, sent, err
	}
	return b.takeInTurn(ctx, takes)
}

// takeInTurn makes one take after the other. It first reads the windows that are not known to have
// room.
func (b *Backend[T]) takeInTurn(ctx context.Context, takes []take[T]) (granted, sent bool, err error) {
	fit := true
	for i := range takes {
		t := &takes[i]
		if known, _ := b.recall(t); known && t.fits() {
			continue
		}
		var fits bool
		if t.window, fits, err = b.read(ctx, t.Key, t.Scale, t.Limit.Limit, t.N); err != nil {
			return false, false, err
		}
		fit = fit && fits
	}
	if !fit {
		return false, false, nil
	}
	for i := range takes {
		t := &takes[i]
		t.window, granted, sent, err = b.Take(ctx, t.Key, t.Scale, t.Limit.Limit, t.N)
		if granted {
			continue
		}
		b.undo(ctx, takes[:i])
		return false, sent || err != nil && i > 0, err
	}
	return true, false, nil
}

// undo gives back what some takes of a TakeAll have taken, even if ctx ends. The counts of their
// windows are then those before the takes, unless ctx has ended.
func (b *Backend[T]) undo(ctx context.Context, takes []take[T]) {
	undone := make(chan []uint64, 1) // what was given back of each
	own := slices.Clone(takes)       // the caller may be gone
	b.group.Finish(ctx, func(ctx context.Context) {
		given := make([]uint64, len(own))
		var all sync.WaitGroup // a server that does not respond must not use up the time for the others
		for i := range own {
			t := &own[i]
			if t.N == 0 {
				continue
			}
			all.Go(func() {
				if ok, _, err := b.GiveBack(ctx, t.Key, t.Scale, t.window.ID, t.N); ok && err == nil {
					given[i] = t.N
				}
			})
		}
		all.Wait()
		undone <- given
	})
	select {
	case given := <-undone:
		for i, n := range given {
			takes[i].window.Count -= min(takes[i].window.Count, n)
		}
	default:
	}
}

// take is what a TakeAll takes of one window.
type take[T codec.Value] struct {
	window.Limit
	indexes []int // in the limits of TakeAll
	server  int
	window  window.Window // as far as is known

	// What follows is for takes that are made together.
	slots     *slots[T]
	action    slot.Action
	counted   bool // the server has counted N
	uncertain bool // the server may count N later
}

// fits reports whether the window has room for the take.
func (t *take[T]) fits() bool {
	return t.N <= t.Limit.Limit && t.window.Count <= t.Limit.Limit-t.N
}

// takesOf returns the takes of limits, of which some may have the same window. Their order is the
// same for all clients: so of callers that want the same windows, one gets ahead of the others. It
// is the order of servers and scales, so that takes with the same link follow each other.
func (b *Backend[T]) takesOf(limits []window.Limit) (takes []take[T]) {
	for i, l := range limits {
		k := slices.IndexFunc(takes, func(t take[T]) bool { return t.Key == l.Key && t.Scale == l.Scale })
		if k < 0 {
			takes = append(takes, take[T]{Limit: l, indexes: []int{i}, server: b.pick(l.Key)})
			continue
		}
		t := &takes[k]
		t.indexes = append(t.indexes, i)
		t.Limit.Limit = min(t.Limit.Limit, l.Limit)
		sum, overflow := bits.Add64(t.N, l.N, 0)
		if t.N = sum; overflow > 0 { // it is beyond any limit
			t.N, t.Limit.Limit = math.MaxUint64, 0
		}
	}
	slices.SortFunc(takes, func(x, y take[T]) int {
		return cmp.Or(cmp.Compare(b.names[x.server], b.names[y.server]), cmp.Compare(x.Scale, y.Scale), cmp.Compare(x.Key, y.Key))
	})
	return takes
}

// recall sets the window of a take to what is known of it. Recent says that this may refuse the take
// without asking the server.
func (b *Backend[T]) recall(t *take[T]) (known, recent bool) {
	e := b.table.find(entryKey{t.Key, t.Scale})
	if e == nil {
		return false, false
	}
	r, recent, known := e.known.last(b.now())
	if known {
		t.window = windowOf(r)
		if b.sliding() && !t.fits() {
			t.window.Refused, t.window.RetryAfter = true, e.known.wait(t.Limit.Limit, t.N, b.now())
		}
	}
	return known, recent
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
		return false, sent, err
	}
	return !r.Refused, false, nil
}
