package fixedwindow

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

const (
	// maxTries is how often something is tried that needs quick responses.
	maxTries = 4
	// maxLookups bounds the lookups of one hit or operation.
	maxLookups = 64
	// minPause and maxPause bound the pauses while the name of a record can't be used (H1). A hit
	// is tried 8 times, with 6 pauses, which take longer than the 10 s of H1 together.
	minPause = 250 * time.Millisecond
	maxPause = 4 * time.Second
)

// slots keeps the windows of a count in two records, as package slot describes.
type slots[T codec.Value] struct {
	backend *Backend[T]
	known   known[T]
	records records[T]
	bands   *slot.Bands // those of records
	entry   *entry[T]
	server  Server[T] // counts in known windows
	link    *link[T]
	janitor *janitor[T]

	taken taken[T]
	// INSERTs that have failed since a window was seen, and when the last one did. Their name is
	// in its grace (H1), or other clients were faster.
	failed   int
	failedAt time.Time

	// The mutex of the janitor guards the fields below.
	duty     *duty[T]  // nil if there are no records to remove
	underway int       // actions that may make records and whose outcome is awaited
	changes  uint64    // counts the beginnings and ends of such actions
	opened   time.Time // when the last of them was executed, at the latest
	cleanAt  time.Time // when to clean the records, at the earliest
}

// plan is what Refresh returns if no window is open: an action that opens one, and the connection of its
// lookup.
type plan[T codec.Value] struct {
	conn   *conn.Conn[T]
	action slot.Action
}

func newSlots[T codec.Value](b *Backend[T], server int, e *entry[T], l *layout) *slots[T] {
	return &slots[T]{
		backend: b,
		known:   known[T]{backend: b, scale: e.scale, guard: l.bands.Guard, denialMemory: b.denialMemoryOf(e.scale)},
		records: recordsOf[T](l, slotNames(&l.bands, e.key, e.name)),
		bands:   &l.bands,
		entry:   e, server: b.servers[server], link: b.links[server].of(l.bands.Guard), janitor: b.janitors[server],
	}
}

// Admit implements [coalesce.Window].
func (s *slots[T]) Admit(b coalesce.Batch, h coalesce.Hit) (coalesce.Verdict, coalesce.Result, error) {
	return s.known.admit(b, h)
}

// Refuse implements [coalesce.Window].
func (s *slots[T]) Refuse(n uint64) { s.known.refuse(n) }

// Refresh implements [coalesce.Window]. If the known window is certainly open, Refresh reads its
// count. Otherwise it looks the window up, and returns a *plan if there is none.
func (s *slots[T]) Refresh(ctx context.Context) (coalesce.Plan, error) {
	if old, ok := s.known.open(s.backend.now()); ok {
		if _, live, err := s.read(ctx, nil, old.window.Slot); live || err != nil {
			return nil, err
		}
	}
	s.known.forget()
	return s.find(ctx)
}

// Count implements [coalesce.Window]. It takes one round trip if the window is known.
func (s *slots[T]) Count(ctx context.Context, b coalesce.Batch) coalesce.Outcome {
	o := s.count(ctx, b)
	if o.Full && b.Must {
		return s.known.fill(b, func(b coalesce.Batch) coalesce.Outcome { return s.count(ctx, b) })
	}
	return o
}

// count counts a batch, if the counter holds it.
func (s *slots[T]) count(ctx context.Context, b coalesce.Batch) coalesce.Outcome {
	s.taken.conn = nil
	if id, until, ok := s.known.toJoin(); ok {
		return s.join(ctx, s.bands.Join(id, until), b)
	}
	if p, ok := b.Plan.(*plan[T]); ok {
		return s.begin(ctx, p, b)
	}
	return coalesce.NotCounted
}

// call returns an empty call for the records.
func (s *slots[T]) call(a conn.Atomicity) *conn.Call[T] {
	cl := s.backend.calls.Get()
	cl.Atomicity, cl.MostTTL = a, s.bands.Top
	return cl
}

// ask sends a call on connection c of the link, or on any connection if c is nil. It returns when
// the call was sent and when the replies arrived. After an error the call must not be used any
// more.
func (s *slots[T]) ask(ctx context.Context, c *conn.Conn[T], cl *conn.Call[T], now time.Time) (at span, sent bool, err error) {
	at.from = s.backend.moment(now)
	if c != nil {
		sent, err = s.link.do(ctx, c, cl)
	} else {
		sent, err = s.backend.do(ctx, s.server, cl)
	}
	at.to = s.backend.moment(s.backend.now())
	return at, sent, err
}

// set makes s, which is zero, the state of a window that was read at a time.
func (s *state) set(w *slot.Window, at *span) {
	s.window, s.guardUntil = *w, w.Until
	s.window.Sent, s.window.Received = at.from.clock, at.to.clock
	s.window.Until = at.from.clock.Add(w.Until.Sub(at.from.mono))
	s.window.Latest = at.to.clock.Add(w.Latest.Sub(at.to.mono))
}

// read reads a window, on a connection as ask does, and learns it. It returns false if it is not
// open any more.
func (s *slots[T]) read(ctx context.Context, c *conn.Conn[T], id slot.ID) (w slot.Window, live bool, err error) {
	cl := s.call(conn.Interruptible)
	s.records.add(cl, slot.Request{Verb: slot.Query, Slot: id})
	at, _, err := s.ask(ctx, c, cl, s.backend.now())
	if err != nil {
		return w, false, err
	}
	w, live = s.learnRead(id, cl.Replies[0], &at)
	s.backend.calls.Put(cl)
	return w, live, nil
}

// learnRead learns a window from the reply to a QUERY. It returns false if it is not open any more.
func (s *slots[T]) learnRead(id slot.ID, reply conn.Reply[T], at *span) (w slot.Window, live bool) {
	if w, live = s.bands.WindowOf(id, s.records.observe(reply), at.from.mono, at.to.mono); live {
		var st state
		st.set(&w, at)
		s.known.learn(&st)
		w.Until = st.guardUntil
	}
	return w, live
}

// join counts a batch in the known window.
//
// A batch that waits to be written for longer than a.By is sent nevertheless. Rule 3 is about what
// rests on a lookup. A batch of hits rests on its own QUERY (rule 1), and a reply that comes after
// a.By grants nothing (rule 2).
func (s *slots[T]) join(ctx context.Context, a slot.Action, b coalesce.Batch) coalesce.Outcome {
	cl := s.call(conn.SingleRead)
	s.addJoin(cl, a, b.Sum)
	var at span
	var c *conn.Conn[T] // nil if it does not matter
	var sent bool
	var err error
	if b.Takes {
		at, c, sent, err = s.askOnLink(ctx, cl)
	} else {
		at, sent, err = s.ask(ctx, nil, cl, b.Now)
	}
	if err != nil {
		return coalesce.Outcome{Err: err, Sent: sent}
	}
	o := s.joined(a, &b, cl.Replies, &at, c)
	s.backend.calls.Put(cl)
	return o
}

// addJoin adds the requests that count n in a window.
func (s *slots[T]) addJoin(cl *conn.Call[T], a slot.Action, n uint64) {
	s.records.add(cl, slot.Request{Verb: slot.Decrease, Slot: a.Slot, Value: n}, slot.Request{Verb: slot.Query, Slot: a.Slot})
}

// joined returns the outcome of a batch, given the replies to what addJoin has added.
func (s *slots[T]) joined(a slot.Action, b *coalesce.Batch, replies []conn.Reply[T], at *span, c *conn.Conn[T]) coalesce.Outcome {
	if !at.to.mono.Before(a.By) {
		s.known.forget()
		return coalesce.Outcome{Err: overError(s.bands.Scale), Sent: true}
	}
	out, w := s.bands.Result(a, false, replies[0].OK, s.records.observe(replies[1]), at.from.mono, at.to.mono)
	return s.conclude(out, &w, b, at, c)
}

// begin opens a window that counts a batch, as it was planned.
func (s *slots[T]) begin(ctx context.Context, p *plan[T], b coalesce.Batch) coalesce.Outcome {
	if err := s.janitor.begin(s); err != nil {
		return coalesce.Outcome{Err: err}
	}
	at := span{from: s.backend.moment(s.backend.now())}
	o, sent, err := s.act(ctx, p.conn, p.action, b.Sum)
	at.to = s.backend.moment(s.backend.now())
	s.janitor.end(s, at.to.mono, o.armed || o.inserted)
	switch {
	case err == errAgain:
		return coalesce.NotCounted
	case err != nil:
		return coalesce.Outcome{Err: err, Sent: sent}
	case p.action.Kind == slot.Create:
		out, w := s.bands.Created(p.action, o.inserted, b.Sum, o.sent, o.received)
		if out == slot.Lost {
			s.failed, s.failedAt = s.failed+1, s.link.guards.Now()
		}
		return s.conclude(out, &w, &b, &at, p.conn)
	default:
		out, w := s.bands.Result(p.action, o.armed, o.added, o.shown[p.action.Slot], o.sent, o.received)
		return s.conclude(out, &w, &b, &at, p.conn)
	}
}

// conclude returns the outcome of a batch, and learns the window. C is the connection, if that
// was the link's.
func (s *slots[T]) conclude(out slot.Outcome, w *slot.Window, b *coalesce.Batch, at *span, c *conn.Conn[T]) coalesce.Outcome {
	if out == slot.Lost {
		s.known.forget()
		return coalesce.NotCounted
	}
	s.failed = 0
	s.learnCounted(w, b, at, c)
	return s.known.outcomeOf(b, out == slot.Counted, at.to.clock)
}

// learnCounted learns the window that a batch was counted in.
func (s *slots[T]) learnCounted(w *slot.Window, b *coalesce.Batch, at *span, c *conn.Conn[T]) {
	var st state
	st.set(w, at)
	if b.Takes {
		st.conn = c
		st.undecided = st.window.Count > b.Limit
		s.taken = taken[T]{c, *w}
	}
	s.known.learn(&st)
}

// act executes an action on the connection of its lookup. errAgain says that it was not executed,
// because it was too late or the connection has ended.
func (s *slots[T]) act(ctx context.Context, c *conn.Conn[T], a slot.Action, n uint64) (o outcome, sent bool, err error) {
	var buf [8]slot.Request
	requests := s.bands.Requests(buf[:0], a, n)
	cl := s.call(conn.SingleRead)
	s.records.add(cl, requests...)
	from := s.link.guards.Now()
	if sent, err = s.link.doBy(ctx, c, cl, s.bands.Deadline(a), a.By); err != nil {
		return outcome{}, sent, err
	}
	o = s.records.outcome(a, requests, cl.Replies)
	o.sent, o.received = from, s.link.guards.Now()
	s.backend.calls.Put(cl)
	if !o.received.Before(a.By) {
		return outcome{}, true, errLate
	}
	return o, true, nil
}

// search is the lookups of one hit or operation on one connection.
type search[T codec.Value] struct {
	conn    *conn.Conn[T]
	history slot.History
	first   slot.ID // to look up: the one that will be opened next
	slow    int     // lookups whose replies came too late to act on them
}

// search looks both slots up again and again, and executes what decide returns, until that is Done.
func (s *slots[T]) search(ctx context.Context, decide func(*search[T]) (slot.Action, error)) error {
	f := search[T]{first: s.next()}
	for range maxLookups {
		if err := s.lookUp(ctx, &f); err != nil {
			return err
		}
		a, err := decide(&f)
		switch {
		case err != nil || a.Kind == slot.Done:
			return err
		case a.Kind == slot.Again:
			f.first = a.Slot
			var early time.Duration
			early, err = s.link.guards.sleepUntil(ctx, a.At)
			f.history, s.failedAt = f.history.Earlier(early), s.failedAt.Add(-early)
		default:
			err = s.step(ctx, &f, a)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %d lookups have shown no state of a window of %v that lasts", ErrTooLate, maxLookups, s.bands.Scale)
}

// lookUp looks both slots up once more. It tries again if a connection ends.
func (s *slots[T]) lookUp(ctx context.Context, f *search[T]) error {
	for failures := 1; ; failures++ {
		c, err := s.link.connect(ctx)
		if err != nil {
			return err
		}
		if c != f.conn {
			f.conn, f.history = c, slot.History{}
		}
		cl := s.call(conn.Interruptible)
		s.records.add(cl, slot.Request{Verb: slot.Query, Slot: f.first}, slot.Request{Verb: slot.Query, Slot: f.first.Other()})
		l := slot.Lookup{First: f.first, Sent: s.link.guards.Now()}
		if _, err = s.link.do(ctx, c, cl); err == nil {
			l.Received = s.link.guards.Now()
			l.Slots[f.first], l.Slots[f.first.Other()] = s.records.observe(cl.Replies[0]), s.records.observe(cl.Replies[1])
			s.backend.calls.Put(cl)
			f.history = s.bands.Extend(f.history, l)
			return nil
		}
		if failures == maxTries || ctx.Err() != nil {
			return err
		}
	}
}

// tooLate reports whether the replies to the last lookup came too late to act on it.
func (s *slots[T]) tooLate(f *search[T]) bool {
	return s.link.guards.Now().Sub(f.history.Last.Sent) >= s.bands.Guard/2
}

// repeat returns the repetition of a lookup that came too late, or an error if several did.
func (s *slots[T]) repeat(f *search[T]) (slot.Action, error) {
	if f.slow++; f.slow < maxTries {
		return slot.Action{Kind: slot.Again, Slot: f.first}, nil
	}
	trip := f.history.Last.Received.Sub(f.history.Last.Sent).Round(time.Millisecond)
	return slot.Action{}, fmt.Errorf("%w: the server responds after %v, and a window of %v takes a response within %v",
		ErrTooLate, trip, s.bands.Scale, s.bands.Guard/2)
}

// find looks the window up. If there is none, it returns how to open one, after what has to be
// done before.
func (s *slots[T]) find(ctx context.Context) (p coalesce.Plan, err error) {
	err = s.search(ctx, func(f *search[T]) (slot.Action, error) {
		if s.seen(f) {
			return slot.Action{Kind: slot.Done}, nil
		}
		a := s.bands.Hit(f.history)
		switch {
		case a.Kind != slot.Open && a.Kind != slot.Create:
			return a, nil
		case s.tooLate(f):
			return s.repeat(f)
		case a.Kind == slot.Create && s.link.guards.Now().Before(s.createAt()):
			return slot.Action{Kind: slot.Again, Slot: f.first, At: s.createAt()}, nil
		}
		if waited, err := s.janitor.parking.await(ctx); waited || err != nil {
			return slot.Action{Kind: slot.Again, Slot: f.first}, err
		}
		p = &plan[T]{f.conn, a}
		return slot.Action{Kind: slot.Done}, nil
	})
	return p, err
}

// createAt returns when to try an INSERT, after others have failed.
func (s *slots[T]) createAt() time.Time {
	if s.failed < 2 {
		return time.Time{}
	}
	return s.failedAt.Add(min(minPause<<min(s.failed-2, 10), maxPause))
}

// next returns the slot that is opened next, as far as is known.
func (s *slots[T]) next() slot.ID {
	if st, _ := s.known.current(); st.id != 0 {
		return st.window.Slot.Other()
	}
	return slot.A
}

// seen makes the window that the last lookup shows the known one. It returns false if there is
// none.
func (s *slots[T]) seen(f *search[T]) bool {
	l := f.history.Last
	w, live := s.bands.Live(l)
	if !live {
		return false
	}
	s.failed = 0
	now := s.backend.moment(s.backend.now())
	var st state
	st.set(&w, &span{now.at(l.Sent), now.at(l.Received)})
	s.known.learn(&st)
	if _, ok := s.bands.Untidy(l); ok {
		s.janitor.cleanSoon(s)
	}
	return true
}

// step executes an action on the way to a slot that can be opened, or to the end of a window. If
// its connection ends, the next lookup notices it.
func (s *slots[T]) step(ctx context.Context, f *search[T], a slot.Action) error {
	if err := s.janitor.begin(s); err != nil {
		return err
	}
	o, _, err := s.act(ctx, f.conn, a, 0)
	if err == nil && a.Kind == slot.Claim {
		if next, ok := s.bands.Claimed(f.history, a, o.claimed, o.shown, o.sent); ok {
			_, _, err = s.act(ctx, f.conn, next, 0)
		}
	}
	s.janitor.end(s, s.link.guards.Now(), false)
	if err != nil && f.conn.Open() && err != errAgain {
		return err
	}
	return ctx.Err()
}

// peek implements [keeper].
func (s *slots[T]) peek(ctx context.Context) (st state, found bool, err error) {
	forgets := s.known.forgotten()
	cl := s.call(conn.SingleRead)
	s.records.add(cl, slot.Request{Verb: slot.Query, Slot: slot.A}, slot.Request{Verb: slot.Query, Slot: slot.B})
	at, _, err := s.ask(ctx, nil, cl, s.backend.now())
	if err != nil {
		return st, false, err
	}
	l := slot.Lookup{Sent: at.from.mono, Received: at.to.mono}
	l.Slots = [2]slot.Observation{s.records.observe(cl.Replies[0]), s.records.observe(cl.Replies[1])}
	s.backend.calls.Put(cl)
	w, live := s.bands.Live(l)
	if live {
		st.set(&w, &at)
		s.known.meet(&st, forgets)
	}
	return st, live, nil
}

// reset ends the open window and returns it, if there was one. If err is not nil, sent reports
// whether it may have been ended.
func (s *slots[T]) reset(ctx context.Context) (r coalesce.Result, sent bool, err error) {
	defer s.known.forget()
	var e slot.Ending
	err = s.search(ctx, func(f *search[T]) (slot.Action, error) {
		found := e.Found
		a := s.bands.Reset(f.history, &e)
		if e.Found && !found {
			s.seen(f)
			st, _ := s.known.current()
			r = s.known.result(&st, s.backend.now())
		}
		if a.Kind != slot.Done && s.tooLate(f) {
			return s.repeat(f)
		}
		sent = sent || a.Kind != slot.Done && a.Kind != slot.Again
		return a, nil
	})
	return r, sent, err
}

// set ends the open window and opens one with a count. If err is not nil, sent reports whether a
// part of that may have been done.
func (s *slots[T]) set(ctx context.Context, count uint64) (r coalesce.Result, sent bool, err error) {
	if _, sent, err = s.reset(ctx); err != nil {
		return coalesce.Result{}, sent, err
	}
	b := coalesce.Batch{Hits: 1, Sum: count, Limit: maxValue[T](), Must: true}
	for range 4 * maxTries {
		if b.Plan, err = s.find(ctx); err != nil {
			return coalesce.Result{}, sent, err
		}
		b.Now = s.backend.now()
		out := s.Count(ctx, b)
		sent = sent || out.Sent
		if out.Err != nil || out.Counted {
			return out.Result, sent, out.Err
		}
	}
	return coalesce.Result{}, sent, overError(s.bands.Scale)
}
