package fixedwindow

import (
	"context"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

// maxTogether bounds the takes that are made together, so that a call fits one read of a server.
const maxTogether = 12

// takeTogether makes takes of known windows with one call for each link, one link after the other. If
// one is refused, it gives back the others, with one call for each link. If a window is known to have
// no room, it reads all of them, unless that was done not long ago.
//
// It is not done if a window is not known, if a hit or take on one of them is in flight, as others
// then share the next request.
func (b *Backend[T]) takeTogether(ctx context.Context, takes []take[T]) (done, granted, sent bool, err error) {
	switch known, mayRefuse, fit := b.recallAll(takes); {
	case !known:
		return false, false, false, nil
	case !fit && mayRefuse:
		return true, false, false, nil
	case !hold(b, takes):
		return false, false, false, nil
	}
	known, mayRefuse, fit := b.recallAll(takes)
	if known && !fit && !mayRefuse {
		if err := b.readTogether(ctx, takes); err != nil {
			release(takes)
			return true, false, false, err
		}
		known, _, fit = b.recallAll(takes)
	}
	if !known || !fit {
		release(takes)
		return known, false, false, nil
	}
	return b.countTogether(ctx, takes)
}

// recallAll sets the windows of takes to what is known of them, and reports whether all takes fit.
func (b *Backend[T]) recallAll(takes []take[T]) (known, mayRefuse, fit bool) {
	mayRefuse, fit = true, true
	for i := range takes {
		knownOne, mayRefuseOne := b.recall(&takes[i])
		if !knownOne {
			return false, false, false
		}
		mayRefuse, fit = mayRefuse && mayRefuseOne, fit && takes[i].fits()
	}
	return true, mayRefuse, fit
}

// hold holds the coalescers of takes. It returns false, and holds none, if the takes can't be made
// together.
func hold[T codec.Value](b *Backend[T], takes []take[T]) bool {
	if len(takes) > maxTogether {
		return false
	}
	for i := range takes {
		t := &takes[i]
		e := b.table.find(entryKeyOf(t.Key, &t.Limit))
		if e == nil || t.N == 0 {
			release(takes[:i])
			return false
		}
		if !e.coalescer.TryAcquire() {
			release(takes[:i])
			return false
		}
		t.slots = e.windows
	}
	return true
}

// release releases the coalescers of takes.
func release[T codec.Value](takes []take[T]) {
	for i := range takes {
		takes[i].slots.entry.coalescer.Release(takes[i].uncertain)
	}
}

// ofLink returns how many of the takes have the link of the first one.
func ofLink[T codec.Value](takes []take[T]) int {
	n := 1
	for n < len(takes) && takes[n].slots.link == takes[0].slots.link {
		n++
	}
	return n
}

// newCallFor returns an empty call for the records of takes.
func (b *Backend[T]) newCallFor(takes []take[T], a conn.Atomicity) *conn.Call[T] {
	cl := takes[0].slots.newCall(a)
	for i := range takes {
		cl.MostTTL = max(cl.MostTTL, takes[i].slots.bands.Top)
	}
	return cl
}

// readTogether reads the known windows, with one call for each link.
func (b *Backend[T]) readTogether(ctx context.Context, takes []take[T]) error {
	for len(takes) > 0 {
		n := ofLink(takes)
		part := takes[:n]
		takes = takes[n:]
		cl := b.newCallFor(part, conn.Interruptible)
		ids := make([]slot.ID, n)
		for i := range part {
			s := part[i].slots
			known, _ := s.known.current()
			ids[i] = known.Slot
			s.records.add(cl, slot.Request{Verb: slot.Query, Slot: known.Slot})
		}
		at, _, err := part[0].slots.ask(ctx, nil, cl, time.Now())
		if err != nil {
			return err
		}
		for i := range part {
			s := part[i].slots
			if _, live := s.learnRead(ids[i], cl.Responses[i], &at); !live {
				s.known.forget()
			}
		}
		b.calls.Put(cl)
	}
	return nil
}

// countTogether makes the takes, whose coalescers are held, and releases them. It is not done if a
// window was over by then.
func (b *Backend[T]) countTogether(ctx context.Context, takes []take[T]) (done, granted, sent bool, err error) {
	for begun := 0; begun < len(takes); {
		part := takes[begun:]
		part = part[:ofLink(part)]
		missed, fit, sent, err := b.countOn(ctx, part)
		begun += len(part)
		if !missed && fit && err == nil {
			continue
		}
		b.giveBackAndRelease(ctx, takes, begun)
		return !missed || err != nil, false, sent || err != nil && begun > len(part), err
	}
	release(takes)
	return true, true, false, nil
}

// giveBackAndRelease gives back what the first of the takes have taken, even if ctx ends, and then releases
// all. The counts of their windows are then those before the takes, unless ctx has ended.
func (b *Backend[T]) giveBackAndRelease(ctx context.Context, takes []take[T], begun int) {
	b.finish(ctx, takes, func(ctx context.Context, own []take[T]) {
		defer release(own)
		var all sync.WaitGroup // a server that does not respond must not use up the time for the others
		for asked := own[:begun]; len(asked) > 0; {
			n := ofLink(asked)
			part := asked[:n]
			all.Go(func() { b.giveBackTogether(ctx, part) })
			asked = asked[n:]
		}
		all.Wait()
	})
}

// countOn makes the takes of windows with one link. Missed says that a window was over by then, and
// fit that all takes are within their limits.
func (b *Backend[T]) countOn(ctx context.Context, part []take[T]) (missed, fit, sent bool, err error) {
	now := time.Now()
	cl := b.newCallFor(part, conn.SingleRead)
	for i := range part {
		t := &part[i]
		known, _ := t.slots.known.current()
		t.action = t.slots.bands.Join(known.Slot, known.Until)
		t.slots.addJoin(cl, t.action, t.N)
	}
	at, c, sent, err := part[0].slots.askOnLink(ctx, cl)
	if err != nil {
		for i := range part {
			part[i].uncertain = sent
		}
		return false, false, sent, err
	}
	fit = true
	for i := range part {
		t := &part[i]
		shared := coalesce.SharedHits{Hits: 1, Sum: t.N, Max: t.Limit.Max, Takes: true, Now: now}
		o := t.slots.joined(t.action, &shared, cl.Responses[2*i:], &at, c)
		if o.Err != nil {
			sent, err = true, o.Err
			continue
		}
		missed = missed || !o.WindowOpen
		t.counted = o.WindowOpen && !o.Full
		t.window = windowOf[T](o.Result)
		if o.Full || t.window.Count > t.Limit.Max {
			fit = false
			t.window.Refused = true
			t.window.RetryAfter = max(t.window.Left, 1)
		}
	}
	b.calls.Put(cl)
	return missed, fit, sent, err
}

// giveBackTogether gives back what takes with one link have taken. What fails stays counted until the
// windows end.
func (b *Backend[T]) giveBackTogether(ctx context.Context, part []take[T]) {
	cl := b.newCallFor(part, conn.SingleRead)
	var link *link[T]
	var c *conn.Conn[T]
	var deadline, by time.Time
	for i := range part {
		t := &part[i]
		if !t.counted {
			continue
		}
		s := t.slots
		a, ok := s.bands.GiveBack(s.taken.window, time.Now())
		t.counted = ok
		if !ok {
			continue
		}
		s.records.add(cl, slot.Request{Verb: slot.Increase, Slot: a.Slot, Value: t.N})
		deadline, by = earlier(deadline, s.bands.Deadline(a)), earlier(by, a.By)
		link, c = s.link, s.taken.conn
	}
	if c == nil {
		b.calls.Put(cl)
		return
	}
	if _, err := link.doBy(ctx, c, cl, deadline, by); err != nil {
		return
	}
	b.calls.Put(cl)
	for i := range part {
		if t := &part[i]; t.counted {
			t.slots.known.subtract(t.N)
			t.given()
		}
	}
}
