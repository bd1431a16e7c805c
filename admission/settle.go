package admission

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
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
// Config.CountRefusals. Others are those of the backend: a Commit that has failed can be repeated, and counts twice if
// only its answer was lost. Those of Done are for the observer of the RateLimit, which has throttr.EventSettled. What a
// policy of the RateLimit answers counts nothing. Commit does not depend on the end of ctx.
func (d *Decision) Commit(ctx context.Context, name string, n uint64) error {
	if err := limits.CheckNumber("n", n); err != nil {
		return err
	}
	if d.state != nil && d.Allowed {
		for i := range d.state.limits {
			if l := &d.state.limits[i]; l.limit.Name == name {
				return d.state.commit(context.WithoutCancel(ctx), l, n)
			}
		}
	}
	return invalid("Commit: the request was denied, or has no limit %q", name)
}

// commit sets what a limit is charged.
func (s *requestState) commit(ctx context.Context, l *limitState, n uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	charged := l.charge
	switch {
	case s.reservation != nil && isCounted(l.result):
		l.charge = n
		if !s.over {
			s.committed = true
			return nil
		}
		err := s.settle(ctx)
		if err != nil {
			l.charge = charged
		}
		return err
	case n < charged:
		return fmt.Errorf("admission: Commit: %d of limit %q can't be given back: %w", charged-n, l.limit.Name,
			throttr.ErrUnsupported)
	case n > charged:
		res, err := s.gate.limiter.Charge(ctx, s.gate.StoredKey(l.key), l.limit, n-charged)
		if err == nil && isCounted(&res) {
			l.charge = n
		}
		return err
	}
	return nil
}

// settle settles the reservation by the charges. The caller holds mu.
func (s *requestState) settle(ctx context.Context) error {
	used := make([]uint64, len(s.limits))
	for i := range s.limits {
		used[i] = s.limits[i].charge
	}
	rv := s.reservation
	s.reservation = nil
	return rv.Commit(ctx, used...)
}

// done settles what was committed. An error is for the observer of the RateLimit.
func (s *requestState) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.committed && s.reservation != nil {
		_ = s.settle(context.WithoutCancel(s.Context))
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
	if d.state == nil {
		return nil
	}
	if d.state.gate.cfg.CountRefusals && d.Allowed && d.state.isCharged() {
		return fmt.Errorf("admission: the request was counted as hits, which can't be given back: %w",
			throttr.ErrUnsupported)
	}
	return d.state.uncharge().Cancel(ctx)
}

// isCharged reports whether the request was counted in a limit.
func (s *requestState) isCharged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.limits, func(l limitState) bool { return l.charge > 0 })
}

// uncharge returns what is reserved and not settled, or nil. Nothing is charged for it from now on, and the caller
// cancels it.
func (s *requestState) uncharge() *throttr.Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	rv := s.reservation
	if rv == nil {
		return nil
	}
	s.reservation = nil
	for i := range s.limits {
		if isCounted(s.limits[i].result) {
			s.limits[i].charge = 0
		}
	}
	return rv
}

// GiveBackLater is [Decision.GiveBack] in the background. If 1024 requests of the Gate are being given back already, it
// returns false, and the request stays counted. It returns when all is given back, or after 2 ms, so that the next
// request of a client finds what a quick store has got back. If an observer or a backend of the program panics in the
// background, [slog.Default] has a line at level ERROR with the stack.
func (d *Decision) GiveBackLater() bool {
	if d.state == nil {
		return true
	}
	later := d.state.gate.later
	select {
	case later <- struct{}{}:
	default:
		return false
	}
	rv := d.state.uncharge()
	if rv == nil {
		<-later
		return true
	}
	ended := make(chan struct{})
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				slog.Error("admission: giving back has panicked", "panic", cause, "stack", string(debug.Stack()))
			}
			close(ended)
			<-later
		}()
		_ = rv.Cancel(d.state) // an error is for the observer of the RateLimit
	}()
	select {
	case <-ended:
	case <-time.After(giveBackMoment):
	}
	return true
}

const (
	// giveBackMoment is for how long GiveBackLater waits at most.
	giveBackMoment = 2 * time.Millisecond
	// maxLater is how many requests of a Gate are given back in the background at a time.
	maxLater = 1024
)
