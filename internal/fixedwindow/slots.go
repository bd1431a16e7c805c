package fixedwindow

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// slots is what a backend remembers of a count, whose windows it keeps in two records, as package slot describes.
type slots[T codec.Value] struct {
	entryKey
	backend *Backend[T]
	known   known
	records[T]
	coalescer *coalesce.Coalescer // of hits in the windows
	link      *link[T]
	janitor   *janitor[T]
	evicted   atomic.Bool // the table had it, and does not any more

	taken taken[T]
	// planned is what Refresh has found if no window is open. It is for the Count that follows.
	planned plan[T]
	// INSERTs that have failed since a window was seen, and when the last one did. Their name is
	// in its grace (H1), or other clients were faster.
	failed   int
	failedAt time.Time

	duty // the janitor's, whose mutex guards it
}

// taken is where hits with takes were counted last.
type taken[T codec.Value] struct {
	conn   *conn.Conn[T] // nil if there was none
	window slot.Window
}

func newSlots[T codec.Value](b *Backend[T], server int, k entryKey) *slots[T] {
	bands, _ := slot.BandsFor(k.scale, maxValue[T]())
	s := &slots[T]{
		entryKey: k, backend: b, link: b.links[server].of(bands.Guard), janitor: b.janitors[server],
		known:   known{bands: &bands, ids: &b.ids, denialMemory: b.denialMemoryOf(k.scale)},
		records: records[T]{&bands, slotNames(&bands, k.key, k.name)},
	}
	s.coalescer = b.group.New(s)
	return s
}

// Admit implements [coalesce.Windows].
func (s *slots[T]) Admit(b coalesce.SharedHits, h coalesce.Hit) (coalesce.Verdict, window.Window) {
	return s.known.admit(b, h)
}

// Subtract implements [coalesce.Windows].
func (s *slots[T]) Subtract(n uint64) { s.known.subtract(n) }

// Refresh implements [coalesce.Windows]. If the known window is certainly open, Refresh reads its
// count. Otherwise it looks the window up, and plans how to open one if there is none.
func (s *slots[T]) Refresh(ctx context.Context) (err error) {
	if _, _, err := s.reread(ctx); err != nil {
		return err
	}
	if _, ok := s.known.certainlyOpen(time.Now()); ok {
		return nil
	}
	s.known.forget()
	s.planned, err = s.find(ctx)
	return err
}

// Count implements [coalesce.Windows]. It takes one round trip if the window is known.
func (s *slots[T]) Count(ctx context.Context, b coalesce.SharedHits) coalesce.Outcome {
	o := s.tryCount(ctx, b)
	if o.Full && b.Must {
		return s.known.fill(b, func(b coalesce.SharedHits) coalesce.Outcome { return s.tryCount(ctx, b) })
	}
	return o
}

// tryCount counts hits, if the counter holds them.
func (s *slots[T]) tryCount(ctx context.Context, b coalesce.SharedHits) coalesce.Outcome {
	s.taken.conn = nil
	if x, until, ok := s.known.toJoin(); ok {
		return s.join(ctx, s.bands.Join(x, until), b)
	}
	if b.Fresh && s.planned.conn != nil {
		return s.openWindow(ctx, s.planned, b)
	}
	return coalesce.NotCounted
}

// newCall returns an empty call for the records.
func (s *slots[T]) newCall(a conn.Atomicity) *conn.Call[T] {
	cl := s.backend.calls.Get()
	cl.Atomicity, cl.MostTTL = a, s.bands.Top
	return cl
}

// ask sends a call on connection c of the link, or on any connection if c is nil. It returns when the call was
// sent and when the responses arrived. After an error the call must not be used any more.
func (s *slots[T]) ask(ctx context.Context, c *conn.Conn[T], cl *conn.Call[T]) (at span, sent bool, err error) {
	at.from = time.Now()
	if c != nil {
		sent, err = s.link.do(ctx, c, cl)
	} else {
		sent, err = s.link.doAnywhere(ctx, cl)
	}
	at.to = time.Now()
	return at, sent, err
}

// read reads a window, on a connection as ask does, and learns it. It returns false if it is not
// open any more.
func (s *slots[T]) read(ctx context.Context, c *conn.Conn[T], x slot.ID) (w slot.Window, live bool, err error) {
	cl := s.newCall(conn.Interruptible)
	s.records.add(cl, slot.Request{Verb: slot.Query, Slot: x})
	at, _, err := s.ask(ctx, c, cl)
	if err != nil {
		return w, false, err
	}
	if w, live = s.bands.WindowOf(x, s.records.observe(cl.Responses[0]), at.from, at.to); live {
		st := state{Window: w}
		s.known.learn(&st)
		w.Until = st.Until // learn may have narrowed it
	}
	s.backend.calls.Put(cl)
	return w, live, nil
}

// reread reads the known window again, if it is certainly open.
func (s *slots[T]) reread(ctx context.Context) (w window.Window, sent bool, err error) {
	st, ok := s.known.certainlyOpen(time.Now())
	if !ok {
		return w, false, nil
	}
	_, live, err := s.read(ctx, nil, st.Slot)
	if err == nil && !live {
		s.known.forget()
	}
	return w, false, err
}

// join counts hits in the known window.
//
// A call that is not written by a.By is sent nevertheless. Rule 3 is about what
// rests on a lookup. A call of hits rests on its own QUERY (rule 1), and a response that comes after
// a.By grants nothing (rule 2).
func (s *slots[T]) join(ctx context.Context, a slot.Action, b coalesce.SharedHits) coalesce.Outcome {
	cl := s.newCall(conn.SingleRead)
	s.addJoin(cl, a, b.Sum)
	c, err := s.connFor(ctx, b.Takes)
	if err != nil {
		s.backend.calls.Put(cl)
		return coalesce.Outcome{Err: err}
	}
	at, sent, err := s.ask(ctx, c, cl)
	if err != nil {
		return coalesce.Outcome{Err: err, Sent: sent}
	}
	o := s.joined(a, &b, cl.Responses, &at, c)
	s.backend.calls.Put(cl)
	return o
}

// addJoin adds the requests that count n in a window.
func (s *slots[T]) addJoin(cl *conn.Call[T], a slot.Action, n uint64) {
	s.records.add(cl, slot.Request{Verb: slot.Decrease, Slot: a.Slot, Value: n}, slot.Request{Verb: slot.Query, Slot: a.Slot})
}

// joined returns the outcome of hits, given the responses to what addJoin has added.
func (s *slots[T]) joined(a slot.Action, b *coalesce.SharedHits, responses []conn.Response[T], at *span, c *conn.Conn[T]) coalesce.Outcome {
	if !at.to.Before(a.By) {
		s.known.forget()
		return coalesce.Outcome{Err: overError(s.bands.Scale), Sent: true}
	}
	out, w := s.bands.Result(a, false, responses[0].OK, s.records.observe(responses[1]), at.from, at.to)
	return s.conclude(out, &w, b, c)
}

// conclude returns the outcome of hits, and learns the window. C is the connection, if that
// was the link's.
func (s *slots[T]) conclude(out slot.Outcome, w *slot.Window, b *coalesce.SharedHits, c *conn.Conn[T]) coalesce.Outcome {
	if out == slot.Missed {
		s.known.forget()
		return coalesce.NotCounted
	}
	s.failed = 0
	s.learnCounted(w, b, c)
	return s.known.outcomeOf(out == slot.Counted, w.Received)
}

// learnCounted learns the window that hits were counted in.
func (s *slots[T]) learnCounted(w *slot.Window, b *coalesce.SharedHits, c *conn.Conn[T]) {
	st := state{Window: *w}
	if b.Takes {
		st.conn = c
		st.undecided = st.Count > b.Max
		s.taken = taken[T]{c, *w}
	}
	s.known.learn(&st)
}

// connFor returns the connection for a call that counts hits: the link's if there are takes, as what is given back
// has to follow them on the same connection (rule 11), and otherwise nil. A call on the link that was not sent
// fails: the link, unlike the pool, sends nothing again.
func (s *slots[T]) connFor(ctx context.Context, takes bool) (*conn.Conn[T], error) {
	if !takes {
		return nil, nil
	}
	return s.link.connect(ctx)
}

// GiveBack implements [coalesce.Windows].
func (s *slots[T]) GiveBack(ctx context.Context, n uint64) {
	t := s.taken
	if t.conn == nil {
		return
	}
	if a, ok := s.bands.GiveBack(t.window, time.Now()); ok {
		s.act(ctx, t.conn, a, n) // what fails stays counted until the window ends
	}
}

// giveBack gives n back to the window with an ID. It returns false if the window is not known to be
// open, or if it can't be told from a later one: then n stays counted.
func (s *slots[T]) giveBack(ctx context.Context, id int64, n uint64) (given bool, err error) {
	old, ok := s.known.certainlyOpen(time.Now())
	c, _ := old.conn.(*conn.Conn[T])
	if !ok || old.id != id || c == nil || !c.Open() {
		return false, nil
	}
	w, live, err := s.read(ctx, c, old.Slot)
	if now, _ := s.known.current(); err != nil || !live || now.id != id || w.Count < n { // it must not wrap (H3)
		return false, nil
	}
	a, ok := s.bands.GiveBack(w, time.Now())
	if !ok {
		return false, nil
	}
	switch _, _, err = s.act(ctx, c, a, n); err {
	case nil:
		s.known.subtract(n)
		return true, nil
	case errAgain:
		return false, nil
	}
	return false, err
}
