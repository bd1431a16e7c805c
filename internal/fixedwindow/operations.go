package fixedwindow

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

// reset ends the open window, if there is one. It is an operation.
func (s *countState) reset(ctx context.Context) (r answer) {
	defer s.forget()
	var ends slot.Window
	r.err = s.search(ctx, func(f *searching) (slot.Action, error) {
		a := s.bands.Reset(f.history, &ends)
		s.learnLive(f)
		if a.Kind != slot.Done && s.tooLate(f) {
			return s.repeat(f)
		}
		r.sent = r.sent || a.Kind != slot.Done && a.Kind != slot.Look
		return a, nil
	})
	r.made = !ends.Sent.IsZero()
	return r
}

// set ends the open window and opens one with a count. If it fails, a part of that may have been done.
func (s *countState) set(ctx context.Context, count uint64) answer {
	r := s.reset(ctx)
	if r.err != nil {
		return r
	}
	for range 4 * maxTries {
		var p plan
		if p, r.err = s.planOpening(ctx); r.err != nil {
			return r
		}
		o := s.count(ctx, &shared{sum: count, charge: true}, p)
		w, opened := s.concluded(&o)
		if opened || o.err != nil {
			return answer{window: w, sent: r.sent || o.sent, err: o.err}
		}
	}
	r.err = overError(s.bands.Scale)
	return r
}

// giveBack gives n back to the window with an ID. It is an operation, which has not been made if the window is not
// known to be open, or can't be told from a later one: then n stays counted.
func (s *countState) giveBack(ctx context.Context, id int64, n uint64) answer {
	old := s.current()
	if !old.certainlyOpen(time.Now()) || old.id != id || old.conn == nil || !old.conn.Open() {
		return answer{}
	}
	now, live, err := s.read(ctx, old.conn, old.Slot)
	if err != nil && old.conn.Open() {
		return answer{err: err}
	}
	if err != nil || !live || now.id != id || now.Count < n { // it must not wrap (H3)
		return answer{}
	}
	a := s.giveBackTo(ctx, now.Window, old.conn, n)
	if a.made {
		s.subtract(n)
	}
	return a
}

// giveBackTo gives n back to a window on the connection that has counted it (rule 11), unless it is too late, or the
// connection has ended.
func (s *countState) giveBackTo(ctx context.Context, w slot.Window, c *conn.Conn, n uint64) answer {
	a, ok := s.bands.GiveBack(w, time.Now())
	if !ok {
		return answer{}
	}
	_, sent, err := s.act(ctx, c, a, n)
	if err == errAgain {
		return answer{}
	}
	return answer{made: err == nil, sent: sent, err: err}
}
