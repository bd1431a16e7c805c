package fixedwindow

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// peek returns the open window, or false if there is none.
func (s *slots) peek(ctx context.Context) (k known, found bool, err error) {
	s.mu.Lock()
	forgets := s.forgets
	s.mu.Unlock()
	cl := s.newCall()
	cl.SingleRead = true
	s.records.addLookup(cl, slot.A)
	at, _, err := s.ask(ctx, nil, cl)
	if err != nil {
		return k, false, err
	}
	l := slot.Lookup{Sent: at.from, Received: at.to, Slots: s.records.lookedUp(slot.A, cl.Responses)}
	s.backend.Calls.Put(cl)
	w, live := s.bands.Live(l)
	if live {
		k = s.learnUnlessKnown(w, forgets)
	}
	return k, live, nil
}

// reset ends the open window and returns it, if there was one. If err is not nil, sent reports
// whether it may have been ended.
func (s *slots) reset(ctx context.Context) (w window.Window, sent bool, err error) {
	defer s.forget()
	var e slot.Ending
	err = s.search(ctx, func(f *lookups) (slot.Action, error) {
		found := e.Found
		a := s.bands.Reset(f.history, &e)
		if e.Found && !found {
			s.learnLive(f)
			k := s.current()
			w = k.window(s.bands.Scale, time.Now())
		}
		if a.Kind != slot.Done && s.tooLate(f) {
			return s.repeat(f)
		}
		sent = sent || a.Kind != slot.Done && a.Kind != slot.Again
		return a, nil
	})
	return w, sent, err
}

// set ends the open window and opens one with a count. If err is not nil, sent reports whether a
// part of that may have been done.
func (s *slots) set(ctx context.Context, count uint64) (w window.Window, sent bool, err error) {
	if _, sent, err = s.reset(ctx); err != nil {
		return w, sent, err
	}
	for range 4 * maxTries {
		b := shared{sum: count, charge: true}
		if b.plan, err = s.planOpening(ctx); err != nil {
			return w, sent, err
		}
		o := s.count(ctx, &b)
		w, opened := s.concluded(&o)
		sent = sent || o.sent
		if o.err != nil || opened {
			return w, sent, o.err
		}
	}
	return w, sent, overError(s.bands.Scale)
}
