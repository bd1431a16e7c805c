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
		backend: b, server: server, link: b.links[server].of(bands.Guard), janitor: b.janitors[server],
		known: known{Window: slot.Window{Slot: slot.B}}, // so that the first lookup begins with A
	}
}

// newCall returns an empty call for the records.
func (s *slots) newCall() *conn.Call {
	cl := s.backend.Calls.Get()
	cl.MostTTL = s.bands.Top
	return cl
}

// ask sends a call on a connection of the link, or on any one if c is nil, and waits for its responses. It also returns
// when the call was sent, and when the responses had arrived. After an error the call must not be used any more.
func (s *slots) ask(ctx context.Context, c *conn.Conn, cl *conn.Call) (at span, sent bool, err error) {
	at.from = time.Now()
	if c != nil {
		sent, err = s.link.send(ctx, c, cl)
	} else {
		var done bool
		done, sent, err = s.link.server.Do(ctx, cl)
		if done && err != nil {
			s.backend.Calls.Put(cl)
		}
	}
	at.to = time.Now()
	return at, sent, err
}

// readBoth reads both slots once, on a connection as ask does.
func (s *slots) readBoth(ctx context.Context, c *conn.Conn, first slot.ID) (l slot.Lookup, err error) {
	cl := s.newCall()
	cl.SingleRead = c == nil // no later lookup decides
	s.records.addLookup(cl, first)
	at, _, err := s.ask(ctx, c, cl)
	if err != nil {
		return l, err
	}
	l = slot.Lookup{First: first, Sent: at.from, Received: at.to, Slots: s.records.lookedUp(first, cl.Responses)}
	s.backend.Calls.Put(cl)
	return l, nil
}

// read reads a slot, on a connection as ask does, and learns its window. It returns false if that is not open any more.
func (s *slots) read(ctx context.Context, c *conn.Conn, x slot.ID) (k known, live bool, err error) {
	cl := s.newCall()
	s.records.add(cl, slot.Request{Op: slot.Query, Slot: x})
	at, _, err := s.ask(ctx, c, cl)
	if err != nil {
		return k, false, err
	}
	w, live := s.bands.WindowOf(x, s.records.observe(cl.Responses[0]), at.from, at.to)
	s.backend.Calls.Put(cl)
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

// giveBack gives n back to the window with an ID. It returns false if the window is not known to be
// open, or if it can't be told from a later one: then n stays counted.
func (s *slots) giveBack(ctx context.Context, id int64, n uint64) (given, sent bool, err error) {
	old := s.current()
	if !old.certainlyOpen(time.Now()) || old.id != id || old.conn == nil || !old.conn.Open() {
		return false, false, nil
	}
	now, live, err := s.read(ctx, old.conn, old.Slot)
	if err != nil {
		if !old.conn.Open() {
			err = nil // it has ended meanwhile
		}
		return false, false, err
	}
	if !live || now.id != id || now.Count < n { // it must not wrap (H3)
		return false, false, nil
	}
	given, sent, err = s.giveBackTo(ctx, now.Window, old.conn, n)
	if given {
		s.subtract(n)
	}
	return given, sent, err
}

// giveBackTo gives n back to a window on the connection that has counted it (rule 11). It returns false without an
// error if it is too late, or if the connection has ended.
func (s *slots) giveBackTo(ctx context.Context, w slot.Window, c *conn.Conn, n uint64) (given, sent bool,
	err error) {
	a, ok := s.bands.GiveBack(w, time.Now())
	if !ok {
		return false, false, nil
	}
	_, sent, err = s.act(ctx, c, a, n)
	if err == errAgain {
		return false, false, nil
	}
	return err == nil, sent && err != nil, err
}
