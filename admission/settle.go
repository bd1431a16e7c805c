package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
)

// Commit sets what a limit is charged for the request, when that is known only afterwards: bytes, or tokens of a
// language model. [Decision.Done] settles what was committed for all limits in one call; after it, Commit does so at
// once, and then only the first one can give something back. More than a limit allows is counted, too. Of a request
// that was given back, or could not be counted in the limit, all of n is counted.
//
// The error matches [throttr.ErrConfig] if the request was denied, or has no limit of that name, [throttr.ErrRange] if
// n is over 2⁶³-1, and [throttr.ErrUnsupported] if something would have to be given back that can't be: see
// Config.CountRefusals. Others are those of the backend. Commit does not depend on the end of ctx.
func (d *Decision) Commit(ctx context.Context, name string, n uint64) error {
	if err := limits.CheckNumber("n", n); err != nil {
		return err
	}
	if d.within != nil && d.Allowed {
		for i := range d.within.limits {
			if d.within.limits[i].limit.Name == name {
				return d.within.commit(context.WithoutCancel(ctx), i, n)
			}
		}
	}
	return invalid("Commit: the request was denied, or has no limit %q", name)
}

// commit sets what the i-th limit is charged.
func (a *admitted) commit(ctx context.Context, i int, n uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := &a.limits[i]
	switch {
	case a.reservation != nil && c.n > 0:
		if a.used == nil {
			for j := range a.limits {
				a.used = append(a.used, a.limits[j].n)
			}
		}
		a.used[i] = n
		if a.over {
			return a.settle(ctx)
		}
	case n < c.charged:
		return fmt.Errorf("admission: Commit: %d of limit %q can't be given back: %w", c.charged-n, c.limit.Name,
			throttr.ErrUnsupported)
	case n > c.charged:
		more := n - c.charged
		c.charged = n
		_, err := a.gate.limiter.Charge(ctx, c.as, c.limit, more)
		return err
	}
	return nil
}

// settle commits what was said. The caller holds mu.
func (a *admitted) settle(ctx context.Context) error {
	var used []uint64
	for i := range a.limits {
		if c := &a.limits[i]; c.n > 0 {
			c.charged = a.used[i]
			used = append(used, c.charged)
		}
	}
	rv := a.reservation
	a.reservation = nil
	return rv.Commit(ctx, used...)
}

// done settles what was committed. An error is for the observer of the RateLimit.
func (a *admitted) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.used != nil && a.reservation != nil {
		_ = a.settle(context.WithoutCancel(a.Context))
	}
}

// GiveBack gives back all that the request was counted, for requests that should not count after all:
// for example to limit failed logins only. Only the first call does something, and only if the
// request was counted in windows that are still open. It does not depend on the end of ctx.
//
// Responses have their header fields from before. If the request was counted as hits, the error
// matches [throttr.ErrUnsupported]: see Config.CountRefusals. Other errors are those of the backend;
// then the request may stay counted.
func (d *Decision) GiveBack(ctx context.Context) error {
	if d.within == nil {
		return nil
	}
	if d.within.gate.cfg.CountRefusals && d.Allowed && len(d.Outcomes) > 0 {
		return fmt.Errorf("admission: the request was counted as hits, which can't be given back: %w",
			throttr.ErrUnsupported)
	}
	return d.within.uncharge().Cancel(ctx)
}

// uncharge returns what is reserved and not settled, or nil. Nothing is charged for it from now on, and the caller
// cancels it.
func (a *admitted) uncharge() *throttr.Reservation {
	a.mu.Lock()
	defer a.mu.Unlock()
	rv := a.reservation
	if rv == nil {
		return nil
	}
	a.reservation = nil
	for i := range a.limits {
		if c := &a.limits[i]; c.n > 0 {
			c.charged = 0
		}
	}
	return rv
}

// GiveBackLater is [Decision.GiveBack] in the background. If too much waits for that already, it returns false, and the
// request stays counted. It waits a moment, so that the next request of a client finds what a quick store has got back.
func (d *Decision) GiveBackLater() bool {
	if d.within == nil {
		return true
	}
	later := d.within.gate.later
	select {
	case later <- struct{}{}:
	default:
		return false
	}
	rv := d.within.uncharge()
	if rv == nil {
		<-later
		return true
	}
	ended := make(chan struct{})
	go func() {
		_ = rv.Cancel(d.within) // an error is for the observer of the RateLimit
		close(ended)
		<-later
	}()
	moment := time.NewTimer(giveBackMoment)
	defer moment.Stop()
	select {
	case <-ended:
	case <-moment.C:
	}
	return true
}

const (
	// giveBackMoment is for how long GiveBackLater waits.
	giveBackMoment = 2 * time.Millisecond
	// maxLater is how many requests are given back at a time.
	maxLater = 1024
)
