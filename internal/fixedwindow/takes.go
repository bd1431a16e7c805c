package fixedwindow

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

// taken is the last batch with takes that was counted.
type taken[T codec.Value] struct {
	conn   *conn.Conn[T] // nil if there was none
	window slot.Window
	sent   time.Time
}

// askOnLink is ask for a batch with takes, on the link: what is given back has to follow it on the
// same connection (rule 11).
func (s *slots[T]) askOnLink(ctx context.Context, cl *conn.Call[T]) (from, to moment, c *conn.Conn[T], sent bool, err error) {
	if c, err = s.link.connect(ctx); err != nil {
		s.backend.calls.Put(cl)
		return from, to, nil, false, err
	}
	from = s.backend.moment(s.backend.now())
	sent, err = s.link.do(ctx, c, cl)
	return from, s.backend.moment(s.backend.now()), c, sent, err
}

// GiveBack implements [coalesce.Window].
func (s *slots[T]) GiveBack(ctx context.Context, n uint64) {
	t := s.taken
	if t.conn == nil {
		return
	}
	if a, ok := s.ReturnHits(t.window, t.sent, time.Now()); ok {
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
	cl := s.call(conn.Interruptible)
	s.add(cl, slot.Request{Verb: slot.Query, Slot: old.Slot})
	from := s.backend.moment(s.backend.now())
	if _, err := s.link.do(ctx, c, cl); err != nil {
		return false, nil // nothing was given back
	}
	to := s.backend.moment(s.backend.now())
	o := s.observe(cl.Replies[0])
	s.backend.calls.Put(cl)
	w, live := s.WindowOf(old.Slot, o, from.mono, to.mono)
	if !live || w.Count < n { // the counter must not wrap (H3)
		return false, nil
	}
	st := stateOf(w, from, to)
	s.learn(&st)
	w.Until = st.until
	a, ok := s.ReturnHits(w, from.mono, time.Now())
	if !ok || st.id != id {
		return false, nil
	}
	if _, _, err := s.act(ctx, c, a, n); err != nil {
		if err == errAgain {
			return false, nil
		}
		return false, err
	}
	s.Refuse(n)
	return true, nil
}
