package admission

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
)

// settling is how a request is settled that was counted.
type settling struct {
	reservation *throttr.Reservation // of what was counted; or nil

	mu        sync.Mutex // guards what follows, and the charged and actual of limits
	committed bool       // Commit has said something that is not settled
	settled   bool       // nothing is given back any more
	over      bool       // Done was called
}

// Commit sets what a limit is charged for the request, when that is known only afterwards: bytes, or tokens of a
// language model. [Decision.Done] settles what was committed for all limits in one call; after it, Commit does so at
// once, and then only the first one can give something back. More than a limit allows is counted, too. Of a request
// that was given back, or could not be counted in the limit, all of n is counted.
//
// The error matches [throttr.ErrConfig] if the request was denied, or has no limit of that name, [throttr.ErrRange] if
// n is over 2⁶³-1, and [throttr.ErrUnsupported] if something would have to be given back that can't be: see
// Config.CountRefusals. Others are those of the backend. Commit does not depend on the end of ctx.
func (d Decision) Commit(ctx context.Context, name string, n uint64) error {
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
	s := &a.settling
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &a.limits[i]
	if c.reserved && !s.settled {
		c.actual = n
		s.committed = true
		if s.over {
			return a.settle(ctx)
		}
		return nil
	}
	if n < c.charged {
		return fmt.Errorf("admission: Commit: %d of limit %q can't be given back: %w", c.charged-n, c.limit.Name, throttr.ErrUnsupported)
	}
	more := n - c.charged
	c.charged = n
	if more == 0 {
		return nil
	}
	_, err := a.gate.limiter.Charge(ctx, c.as, c.limit, more)
	return err
}

// settle commits what was said. The caller holds mu.
func (a *admitted) settle(ctx context.Context) error {
	s := &a.settling
	s.settled = true
	s.committed = false
	var used []uint64
	for i := range a.limits {
		if c := &a.limits[i]; c.reserved {
			used = append(used, c.actual)
			c.charged = c.actual
		}
	}
	return s.reservation.Commit(ctx, used...)
}

// done settles what was committed. An error is for the observer of the RateLimit.
func (a *admitted) done() {
	s := &a.settling
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.committed && !s.settled {
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
func (d Decision) GiveBack(ctx context.Context) error {
	if d.within == nil {
		return nil
	}
	s := &d.within.settling
	if d.within.gate.cfg.CountRefusals && d.Allowed && len(d.Outcomes) > 0 {
		return fmt.Errorf("admission: the request was counted as hits, which can't be given back: %w", throttr.ErrUnsupported)
	}
	if !d.within.giveBack() {
		return nil
	}
	return s.reservation.Cancel(ctx)
}

// giveBack reports whether what was reserved is to be given back: it is not settled yet, and [Decision.Done] does not
// do it any more. Nothing is charged for it from now on.
func (a *admitted) giveBack() bool {
	s := &a.settling
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled {
		return false
	}
	s.settled = true
	for i := range a.limits {
		if c := &a.limits[i]; c.reserved {
			c.charged = 0
		}
	}
	return true
}

// GiveBackLater is [Decision.GiveBack] in the background. If too much waits for that already, it returns false, and the
// request stays counted. It waits a moment, so that the next request of a client finds what a quick store has got back.
func (d Decision) GiveBackLater() bool {
	if d.within == nil || d.within.settling.reservation == nil {
		return true
	}
	g := d.within.gate
	select {
	case g.later <- struct{}{}:
	default:
		return false
	}
	if !d.within.giveBack() {
		<-g.later
		return true
	}
	ended := make(chan struct{})
	go func() {
		_ = d.within.settling.reservation.Cancel(d.within) // an error is for the observer of the RateLimit
		close(ended)
		<-g.later
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
