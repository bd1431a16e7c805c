package fixedwindow

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/slot"
)

const (
	// maxTries is how often something is tried that needs quick responses.
	maxTries = 4
	// maxLookups bounds the lookups of one hit or operation.
	maxLookups = 64
	// minPause and maxPause bound the pauses while the name of a record can't be used (H1). A hit is tried 8 times,
	// half of maxAttempts, with 6 pauses, which take longer than the 10 s of H1 together.
	minPause = 250 * time.Millisecond
	maxPause = 4 * time.Second
)

// plan is how to open a window: an action, and the connection of its lookup. Without a conn there is no plan, as a
// window is known to be open.
type plan struct {
	conn   *conn.Conn
	action slot.Action
}

// searching is the state of a search: its lookups on one connection.
type searching struct {
	conn    *conn.Conn
	history slot.History
	first   slot.ID // to look up: the one that will be opened next
	slow    int     // lookups whose responses came too late to act on them
}

// search looks both slots up again and again, and executes what decide returns, until that is Done.
func (s *countState) search(ctx context.Context, decide func(*searching) (slot.Action, error)) error {
	f := searching{first: s.current().Slot.Other()} // which is opened next, as far as is known
	for range maxLookups {
		if err := s.lookUp(ctx, &f); err != nil {
			return err
		}
		a, err := decide(&f)
		switch {
		case err != nil || a.Kind == slot.Done:
			return err
		case a.Kind == slot.Look:
			f.first = a.Slot
			err = outage.Sleep(ctx, time.Until(a.At))
		default:
			err = s.step(ctx, &f, a)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %d lookups have shown no state of a window of %v that lasts", ErrTooLate, maxLookups,
		s.bands.Scale)
}

// lookUp looks both slots up once more. It tries again if a connection ends.
func (s *countState) lookUp(ctx context.Context, f *searching) error {
	for failures := 1; ; failures++ {
		c, err := s.link.connect(ctx)
		if err != nil {
			return err
		}
		if c != f.conn {
			f.conn, f.history = c, slot.History{}
		}
		l, err := s.readBoth(ctx, c, f.first)
		if err == nil {
			f.history = s.bands.Extend(f.history, l)
			return nil
		}
		if failures == maxTries || ctx.Err() != nil {
			return err
		}
	}
}

// tooLate reports whether the responses to the last lookup came too late to act on it.
func (s *countState) tooLate(f *searching) bool {
	return time.Since(f.history.Last.Sent) >= s.bands.Guard/2
}

// repeat returns the repetition of a lookup that came too late, or an error if several did.
func (s *countState) repeat(f *searching) (slot.Action, error) {
	if f.slow++; f.slow < maxTries {
		return slot.Action{Kind: slot.Look, Slot: f.first}, nil
	}
	trip := f.history.Last.Received.Sub(f.history.Last.Sent).Round(time.Millisecond)
	return slot.Action{}, fmt.Errorf("%w: the server responds after %v, and a window of %v takes a response within %v",
		ErrTooLate, trip, s.bands.Scale, s.bands.Guard/2)
}

// prepare refreshes the known window if that is certainly open. Otherwise it searches for the open one, and plans how
// to open one if there is none. So there is a known window or a plan then, unless it has failed.
func (s *countState) prepare(ctx context.Context) (p plan, err error) {
	if err := s.refresh(ctx).err; err != nil {
		return p, err
	}
	if k := s.current(); k.certainlyOpen(time.Now()) {
		return p, nil
	}
	s.forget()
	return s.planOpening(ctx)
}

// planOpening searches for the open window. If there is none, it returns how to open one, after what has to be
// done before.
func (s *countState) planOpening(ctx context.Context) (p plan, err error) {
	err = s.search(ctx, func(f *searching) (slot.Action, error) {
		if s.learnLive(f) {
			return slot.Action{Kind: slot.Done}, nil
		}
		a := s.bands.ToOpen(f.history)
		switch {
		case a.Kind != slot.Open && a.Kind != slot.Create:
			return a, nil
		case s.tooLate(f):
			return s.repeat(f)
		case a.Kind == slot.Create && time.Now().Before(s.createAt()):
			return slot.Action{Kind: slot.Look, Slot: f.first, At: s.createAt()}, nil
		}
		// No record is created before the sweeper has decided whether to park the server, for which it has a second.
		if waited, err := s.janitor.sweeper.AwaitDecision(ctx); waited || err != nil {
			return slot.Action{Kind: slot.Look, Slot: f.first}, err
		}
		p = plan{f.conn, a}
		return slot.Action{Kind: slot.Done}, nil
	})
	return p, err
}

// createAt returns when to try an INSERT, after others have failed.
func (s *countState) createAt() time.Time {
	if s.failed < 2 {
		return time.Time{}
	}
	return s.failedAt.Add(min(minPause<<min(s.failed-2, 10), maxPause))
}

// learnLive makes the window that the last lookup shows the known one, or returns false if there is none.
func (s *countState) learnLive(f *searching) bool {
	l := f.history.Last
	w, live := s.bands.Live(l)
	if !live {
		return false
	}
	s.failed = 0
	s.learn(w)
	if _, ok := s.bands.Untidy(l); ok {
		s.janitor.cleanSoon(s)
	}
	return true
}

// step executes an action on the way to a slot that can be opened, or to the end of a window. If
// its connection ends, the next lookup notices it.
func (s *countState) step(ctx context.Context, f *searching, a slot.Action) error {
	if err := s.janitor.actionBegins(s); err != nil {
		return err
	}
	e, _, err := s.act(ctx, f.conn, a, 0)
	if err == nil && a.Kind == slot.Claim {
		if next, ok := s.bands.Claimed(f.history, a, e); ok {
			_, _, err = s.act(ctx, f.conn, next, 0)
		}
	}
	s.janitor.actionEnds(s, false)
	if err != nil && f.conn.Open() && err != errAgain {
		return err
	}
	return ctx.Err()
}
