package fixedwindow

import (
	"context"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

// slots is what a backend remembers of a count, whose windows it keeps in two records, as package slot describes.
type slots struct {
	countKey
	records
	backend *Backend
	server  int // of the key
	link    *link
	janitor *janitor

	mu    sync.Mutex // guards known and queue
	known known      // changes only while the queue is served, and in learnUnlessKnown
	queue queue

	// The goroutine that serves the queue uses what follows: INSERTs that have failed since a window was seen, and when
	// the last one did. Their name is in its grace (H1), or other clients were faster.
	failed   int
	failedAt time.Time

	duty duty // of the janitor, whose mutex guards it
}

func newSlots(b *Backend, bands slot.Bands, k countKey) *slots {
	server := b.Pick(k.key)
	return &slots{
		countKey: k, records: records{&bands, slotNames(&bands, k.key, k.name)},
		backend: b, server: server, link: b.links[server][classOf(bands.Guard)], janitor: b.janitors[server],
		known: known{Window: slot.Window{Slot: slot.B}}, // so that the first lookup begins with A
	}
}

// act sends the requests of an action on a connection of the link, or on any one if c is nil, and returns what they
// have done. Those of an action that rests on a lookup go out on its connection, in time or never (rule 3): errAgain
// says that they were not executed, because it was too late or the connection has ended.
func (s *slots) act(ctx context.Context, c *conn.Conn, a slot.Action, n uint64) (e slot.Effects, sent bool, err error) {
	cl := s.backend.Calls.Get()
	cl.MostTTL = s.bands.Top
	s.records.add(cl, a, n)
	cl.SingleRead = a.Kind != slot.Read && (c == nil || a.Kind != slot.Look) // a search looks up again
	e.First = a.Slot
	e.Sent = time.Now()
	switch {
	case c == nil:
		var done bool
		done, sent, err = s.link.server.Do(ctx, cl)
		if done && err != nil {
			s.backend.Calls.Put(cl)
		}
	case a.Kind == slot.Look || a.Kind == slot.Read || a.Kind == slot.Join:
		sent, err = s.link.send(ctx, c, cl)
	default:
		sent, err = s.link.sendBy(ctx, c, cl, s.bands.Deadline(a), a.By)
	}
	e.Received = time.Now()
	if err != nil {
		return slot.Effects{}, sent, err
	}
	s.records.effects(&e, a, n, cl.Responses)
	s.backend.Calls.Put(cl)
	return e, true, nil
}

// readBoth reads both slots once, on a connection as act does.
func (s *slots) readBoth(ctx context.Context, c *conn.Conn, first slot.ID) (slot.Lookup, error) {
	e, _, err := s.act(ctx, c, slot.Action{Kind: slot.Look, Slot: first}, 0)
	return e.Lookup, err
}

// read reads a slot, on a connection as act does, and learns its window. It returns false if that is not open any more.
func (s *slots) read(ctx context.Context, c *conn.Conn, x slot.ID) (k known, live bool, err error) {
	e, _, err := s.act(ctx, c, slot.Action{Kind: slot.Read, Slot: x}, 0)
	if err != nil {
		return k, false, err
	}
	w, live := s.bands.WindowOf(x, e.Lookup)
	if live {
		k = s.learn(w)
	}
	return k, live, nil
}

// refresh reads the known window again, if it is certainly open. It is an operation.
func (s *slots) refresh(ctx context.Context) answer {
	k := s.current()
	if !k.certainlyOpen(time.Now()) {
		return answer{}
	}
	_, live, err := s.read(ctx, nil, k.Slot)
	if err == nil && !live {
		s.forget()
	}
	return answer{err: err}
}

// giveBack gives n back to the window with an ID. It is an operation, which has not been made if the window is not known
// to be open, or can't be told from a later one: then n stays counted.
func (s *slots) giveBack(ctx context.Context, id int64, n uint64) answer {
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
func (s *slots) giveBackTo(ctx context.Context, w slot.Window, c *conn.Conn, n uint64) answer {
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
