package fixedwindow

import (
	"context"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

// taken is the last batch with takes that was counted.
type taken[T codec.Value] struct {
	conn   *conn.Conn[T] // nil if there was none
	window slot.Window
}

// askOnLink is ask for a call with takes, on the link: what is given back has to follow it on the same
// connection (rule 11).
func (s *slots[T]) askOnLink(ctx context.Context, cl *conn.Call[T]) (at span, c *conn.Conn[T], sent bool, err error) {
	if c, err = s.link.connect(ctx); err != nil {
		s.backend.calls.Put(cl)
		return at, nil, false, err
	}
	at, sent, err = s.ask(ctx, c, cl, s.backend.now())
	return at, c, sent, err
}

// GiveBack implements [coalesce.Window].
func (s *slots[T]) GiveBack(ctx context.Context, n uint64) {
	t := s.taken
	if t.conn == nil {
		return
	}
	if a, ok := s.bands.ReturnHits(t.window, s.link.guards.Now()); ok {
		s.act(ctx, t.conn, a, n) // what fails stays counted until the window ends
	}
}

// giveBack gives n back to the window with an ID. It returns false if the window is not known to be
// open, or if it can't be told from a later one: then n stays counted.
func (s *slots[T]) giveBack(ctx context.Context, id int64, n uint64) (given bool, err error) {
	old, ok := s.known.open(s.backend.now())
	c, _ := old.conn.(*conn.Conn[T])
	if !ok || old.id != id || c == nil || !c.Open() {
		return false, nil
	}
	w, live, err := s.read(ctx, c, old.window.Slot)
	if now, _ := s.known.current(); err != nil || !live || now.id != id || w.Count < n { // it must not wrap (H3)
		return false, nil
	}
	a, ok := s.bands.ReturnHits(w, s.link.guards.Now())
	if !ok {
		return false, nil
	}
	switch _, _, err = s.act(ctx, c, a, n); err {
	case nil:
		s.known.refuse(n)
		return true, nil
	case errAgain:
		return false, nil
	}
	return false, err
}
