package inflight

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// Limiter limits calls in flight. Make one with [New]. It is safe for concurrent use.
//
// It has a bounded number of goroutines, whatever the number of holders and keys, and a timer for each key.
type Limiter struct {
	options
	backend window.Backend
	start   time.Time     // of the monotonic time
	local   *ledger.Owner // of the backend, if it is in the memory of this process
	lost    atomic.Uint64
	closed  atomic.Bool

	// The following is for a store that is asked, and for what it need not be asked for.
	pumps     *pumps
	unlimited *ledger.Owner
}

// New returns a Limiter on a backend that has exchanges: that of package memory, or on Redis. Make one for each
// process and store, and close it at the end. It panics if the backend or an option is nil.
func New(b throttr.Backend, opts ...Option) *Limiter {
	if b == nil {
		panic("inflight: New: backend is nil")
	}
	l := &Limiter{options: optionsOf(opts), backend: b, start: time.Now()}
	if opened, ok := b.(*throttr.OpenBackend); ok {
		b = opened.BackendCloser
	}
	if local, ok := b.(*memory.Backend); ok { // and not a wrapper, which may have an Exchange of its own
		l.local = local.Ledger().Owner(l.maxWaiting)
		return l
	}
	l.unlimited = ledger.New(l.maxKeys, l.now).Owner(l.maxWaiting)
	l.pumps = newPumps(l)
	return l
}

// now returns the monotonic time, which is positive.
func (l *Limiter) now() time.Duration { return time.Since(l.start) + 1 }

// TryAcquire acquires n places of a key if there is room, and nobody waits for it. With ok, the caller releases the Hold. Without ok
// there is no place, or n is more than the Max. An error says that there is no decision: it matches
// throttr.ErrRange or throttr.ErrUnsupported, which are mistakes, the error of ctx, or throttr.ErrUnavailable,
// ErrFull, ErrOverloaded or ErrClosed.
func (l *Limiter) TryAcquire(ctx context.Context, key string, limit Limit, n uint64) (h *Hold, ok bool, err error) {
	h, err = l.acquire(ctx, "try", key, limit, n, false)
	return h, h != nil, err
}

// Acquire acquires n places of a key, and waits for them in line: in a process first come, first served, and
// a large n is not overtaken for ever. The caller releases the Hold. If n is more than the Max, the error is a
// [*throttr.CostError]. Others are those of TryAcquire. If ctx ends, nothing is held.
func (l *Limiter) Acquire(ctx context.Context, key string, limit Limit, n uint64) (*Hold, error) {
	return l.acquire(ctx, "acquire", key, limit, n, true)
}

// acquire acquires. It returns nil if there is no place.
func (l *Limiter) acquire(ctx context.Context, call, key string, limit Limit, n uint64, wait bool) (h *Hold, err error) {
	if err := limit.check(n); err != nil {
		return nil, &api.CallError{Package: "inflight", Call: call, Key: key, Err: err}
	}
	if n > limit.Max && wait {
		return nil, &throttr.CostError{Key: key, Limit: limit.asLimit(), N: n}
	}
	h = &Hold{limiter: l, ctx: ctx}
	if l.observer != nil {
		h.about = &about{ctx: ctx, key: key, limit: limit, n: n, asked: l.now()}
	}
	granted, err := l.grant(h, key, &limit, n, wait)
	if l.observer != nil {
		l.decided(h, granted, err)
	}
	switch {
	case err != nil:
		return nil, &api.CallError{Package: "inflight", Call: call, Key: key, Err: err}
	case !granted:
		return nil, nil
	}
	return h, nil
}

// grant grants places to a Hold, or not.
func (l *Limiter) grant(h *Hold, key string, limit *Limit, n uint64, wait bool) (granted bool, err error) {
	if err := h.ctx.Err(); err != nil {
		return false, err
	}
	switch {
	case n > limit.Max:
		return false, nil
	case l.local != nil:
		return l.take(h.ctx, l.local, h, key, limit, n, limit.Max, wait)
	case limit.Max == window.Unlimited:
		return l.take(h.ctx, l.unlimited, h, key, limit, n, window.Unlimited, false)
	}
	return l.ask(h, key, limit, n, wait)
}

// take takes places in memory.
func (l *Limiter) take(ctx context.Context, owner *ledger.Owner, h *Hold, key string, limit *Limit, n, most uint64, wait bool) (bool, error) {
	h.place.Holder = h
	granted, ready, err := owner.Take(&h.place, key, limit.Name, n, most, wait)
	if h.about != nil {
		h.about.used = h.place.Used
	}
	if granted || err != nil || !wait {
		return granted, err
	}
	select {
	case <-ready:
		if !h.place.Held() {
			return false, window.ErrClosed
		}
		return true, nil
	case <-ctx.Done():
		h.place.Release()
		return false, ctx.Err()
	}
}

// State is the places of a key and name.
type State struct {
	InUse   uint64 // by all processes
	Free    uint64 // of the Max
	Waiting uint64 // calls that wait in line, as far as the store knows
}

// Peek returns the places of a key, and changes nothing. Its errors are those of TryAcquire.
func (l *Limiter) Peek(ctx context.Context, key string, limit Limit) (State, error) {
	err := limit.check(1)
	if err == nil && l.closed.Load() {
		err = window.ErrClosed
	}
	places := make([]window.Places, 1)
	p := &places[0]
	if err == nil {
		exchange := l.backend.Exchange
		if l.pumps != nil {
			exchange = l.pumps.store.Exchange
		}
		err = cmp.Or(exchange(ctx, []window.Claim{{Key: key, Name: limit.Name}}, places), p.Err)
	}
	if err != nil {
		return State{}, &api.CallError{Package: "inflight", Call: "peek", Key: key, Err: err}
	}
	return State{InUse: p.Used, Free: limit.Max - min(p.Used, limit.Max), Waiting: p.Waiting}, nil
}

// Close releases all places, and ends all waits: their errors match throttr.ErrClosed, as those of further calls. It
// tells the store, and retries for up to a second while the circuit is closed. The lease frees the places of which the
// store is not told. It does not close the backend. It always returns nil.
func (l *Limiter) Close() error {
	l.closed.Store(true)
	ended := func(p *ledger.Place) { p.Holder.(*Hold).end(closed) }
	if l.local != nil {
		l.local.Close(ended)
		return nil
	}
	l.unlimited.Close(ended)
	l.pumps.close()
	return nil
}

// Stats is what a Limiter holds.
type Stats struct {
	InUse   uint64 // places that this process holds
	Waiting int    // calls of this process that wait for a place
	Keys    int    // with places that are held or wanted
	Lost    uint64 // places that were lost since New
	Losses  uint64 // how often since New the store had lost its data, or with WithStrict may have
}

// Stats returns what the Limiter holds.
func (l *Limiter) Stats() Stats {
	s := Stats{Lost: l.lost.Load()}
	if l.local != nil {
		s.Waiting = l.local.Waiting()
		s.InUse, s.Keys = l.local.Held()
		return s
	}
	s.Waiting = l.unlimited.Waiting()
	s.InUse, s.Keys = l.unlimited.Held()
	l.pumps.stats(&s)
	return s
}
