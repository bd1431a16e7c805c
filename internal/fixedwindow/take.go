package fixedwindow

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// Take takes n of a window, if its count stays within the limit. Sent reports whether a take that has
// failed may have been counted.
func (b *Backend) Take(ctx context.Context, key string, l window.Limit,
	n uint64) (w window.Window, sent bool, err error) {
	if n == 0 {
		return b.Peek(ctx, key, l, 0)
	}
	return b.countFor(ctx, key, &l, hit{max: l.Max, n: n, take: true})
}

// Peek returns what Take would return, but takes nothing.
func (b *Backend) Peek(ctx context.Context, key string, l window.Limit,
	n uint64) (w window.Window, sent bool, err error) {
	s, _, err := b.find(ctx, key, &l, n)
	if err != nil {
		return w, false, err
	}
	if err := b.group.check(ctx); err != nil {
		return w, false, err
	}
	w, err = s.peek(ctx, &l, n)
	return w, false, err
}

// peek returns the open window. It is Refused if a take of n does not fit it.
func (s *countState) peek(ctx context.Context, l *window.Limit, n uint64) (w window.Window, err error) {
	before := s.current()
	lookup, err := s.readBoth(ctx, nil, slot.A)
	if err != nil {
		return w, err
	}
	if open, live := s.bands.Live(lookup); live {
		k := s.learnUnlessKnown(open, before)
		w = bounded(k.window(l.Scale, time.Now()))
	}
	if n > l.Max || w.Count > l.Max-n {
		refuse(&w, l, n)
	}
	return w, nil
}

// KeyError is the error of a TakeAll that the take of a key has met.
type KeyError struct {
	Key string
	Err error
}

// Error returns the text of the error alone.
func (e *KeyError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *KeyError) Unwrap() error { return e.Err }

// failed returns an error with the key of a take, nil if it is nil.
func failed(t *window.Take, err error) error {
	if err == nil {
		return nil
	}
	return &KeyError{t.Key, err}
}

// TakeAll makes all takes, or none of them if one is refused. If all windows are known, it makes
// them together, and otherwise in turn. What can't be given back stays counted until the window
// ends. An error is a [KeyError], unless it is of no take more than of the others.
func (b *Backend) TakeAll(ctx context.Context, takes []window.Take,
	windows []window.Window) (granted, sent bool, err error) {
	check := func(t *window.Take) error { return failed(t, check(&t.Limit, t.N)) }
	granted, _, err = limits.TakeAll(ctx, takes, windows, check,
		func(ctx context.Context, sums []window.Take, states []window.Window) (granted bool, err error) {
			for i := range takes { // which fails if the value size is not known
				t := &takes[i]
				if _, err := b.bandsFor(ctx, t.Key, &t.Limit, t.N); err != nil {
					return false, failed(t, err)
				}
			}
			granted, sent, err = b.takeAll(ctx, sums, states)
			return granted, err
		})
	return granted, sent, err
}

// takeAll makes takes of different counts, all or none.
func (b *Backend) takeAll(ctx context.Context, takes []window.Take,
	windows []window.Window) (granted, sent bool, err error) {
	if err := b.group.check(ctx); err != nil {
		return false, false, err
	}
	ordered, err := b.ordered(ctx, takes)
	if err != nil {
		return false, false, err
	}
	defer func() {
		for i := range ordered {
			windows[ordered[i].index] = ordered[i].window
		}
	}()
	if granted, sent, err := b.takeTogether(ctx, ordered); err != errInTurn {
		return granted, sent, err
	}
	return b.takeInTurn(ctx, ordered)
}

// takeInTurn makes one take after the other. It first reads the windows that are not known to have
// room.
func (b *Backend) takeInTurn(ctx context.Context, takes []take) (granted, sent bool, err error) {
	errs := make([]error, len(takes))
	var reads sync.WaitGroup
	for i := range takes {
		t := &takes[i]
		if known, _ := t.recall(); !known || !t.hasRoom() {
			reads.Go(func() { errs[i] = failed(&t.Take, t.refresh(ctx)) })
		}
	}
	reads.Wait()
	if err := cmp.Or(errs...); err != nil {
		return false, false, err
	}
	if slices.ContainsFunc(takes, func(t take) bool { return !t.hasRoom() }) {
		return false, false, nil
	}
	for i := range takes {
		t := &takes[i]
		t.window, sent, err = b.Take(ctx, t.Key, t.Limit, t.N)
		if err == nil && !t.window.Refused {
			continue
		}
		b.giveBackAll(ctx, takes[:i])
		return false, sent || err != nil && i > 0, failed(&t.Take, err)
	}
	return true, false, nil
}

// refresh sets the window of a take to what the server shows. If it is the known one, that refuses later takes, too.
func (t *take) refresh(ctx context.Context) (err error) {
	if known, _ := t.recall(); known {
		if err := t.state.operate(ctx, t.state.refresh).err; err != nil {
			return err
		}
		if known, _ := t.recall(); known {
			return nil
		}
	}
	t.window, err = t.state.peek(ctx, &t.Limit, t.N)
	return err
}

// giveBackAll gives back what some takes of a TakeAll have taken, even if ctx ends. The counts of their
// windows are then those before the takes, unless ctx has ended.
func (b *Backend) giveBackAll(ctx context.Context, takes []take) {
	b.finish(ctx, takes, func(ctx context.Context, t *take) {
		if t.N == 0 {
			return
		}
		if ok, _, err := b.GiveBack(ctx, t.Key, t.Limit, t.N, t.window.ID); ok && err == nil {
			t.given()
		}
	})
}

// finishTime bounds how long what a call has begun goes on after the call.
const finishTime = 5 * time.Second

// finish calls f, which gives back what a take has taken, for each of them at the same time, even if ctx ends:
// a server that does not respond must not use up the time for the others. The takes are then as f leaves them,
// unless ctx has ended.
func (b *Backend) finish(ctx context.Context, takes []take, f func(ctx context.Context, t *take)) {
	own := slices.Clone(takes) // the caller may be gone
	done := make(chan struct{})
	all := func(ctx context.Context) {
		defer close(done)
		var each sync.WaitGroup
		for i := range own {
			each.Go(func() { f(ctx, &own[i]) })
		}
		each.Wait()
	}
	if !b.group.start(func() {
		ctx, cancel := context.WithTimeout(b.group.ctx, finishTime)
		defer cancel()
		all(ctx)
	}) {
		all(ctx) // what it can't do by the end of ctx is not done
	}
	select {
	case <-done:
		copy(takes, own)
	case <-ctx.Done():
	}
}

// take is what a TakeAll takes of one window.
type take struct {
	window.Take
	index  int // in the takes of TakeAll, in which those of one count are one
	state  *countState
	window window.Window // as far as is known

	// What follows is for takes that are made together.
	outcome   outcome
	counted   bool // the server has counted N
	uncertain bool // the server may count N later
}

// hasRoom reports whether the window has room for the take.
func (t *take) hasRoom() bool {
	return t.N <= t.Limit.Max && t.window.Count <= t.Limit.Max-t.N
}

// given says that N was given back.
func (t *take) given() { t.window.Count -= min(t.window.Count, t.N) }

// ordered returns takes of different counts in an order that is the same for all clients: so of callers that
// want the same windows, one gets ahead of the others. It is the order of servers and scales, so that takes
// with the same link follow each other.
func (b *Backend) ordered(ctx context.Context, takes []window.Take) ([]take, error) {
	all := make([]take, len(takes))
	for i, t := range takes {
		s, _, err := b.find(ctx, t.Key, &t.Limit, 0)
		if err != nil {
			return nil, err
		}
		all[i] = take{Take: t, index: i, state: s}
	}
	slices.SortFunc(all, func(x, y take) int {
		return cmp.Or(cmp.Compare(b.Names[x.state.server], b.Names[y.state.server]),
			cmp.Compare(x.Limit.Scale, y.Limit.Scale),
			cmp.Compare(x.Key, y.Key), cmp.Compare(x.Limit.Name, y.Limit.Name))
	})
	return all, nil
}

// recall sets the window of a take to what is known of it. MayRefuse says that this may refuse the
// take without asking the server.
func (t *take) recall() (known, mayRefuse bool) {
	s := t.state
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known.certainlyOpen(now) {
		return false, false
	}
	t.window = bounded(s.known.window(s.bands.Scale, now))
	if !t.hasRoom() {
		refuse(&t.window, &t.Limit, t.N)
	}
	return true, s.mayRefuse(now)
}

// GiveBack gives n back to the window with an ID. It returns false if the window is over, if its
// connection has ended, or if it can't be told from a later one: then n stays counted.
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64,
	id int64) (given, sent bool, err error) {
	s, _, err := b.find(ctx, key, &l, n)
	if err != nil {
		return false, false, err
	}
	a := s.operate(ctx, func(ctx context.Context) answer { return s.giveBack(ctx, id, n) })
	return a.made, a.sent, a.err
}
