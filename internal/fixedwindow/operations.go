package fixedwindow

import (
	"context"

	"github.com/throttr-go/throttr/internal/slot"
)

// peek returns the open window, or false if there is none.
func (s *slots) peek(ctx context.Context) (k known, found bool, err error) {
	before := s.current()
	l, err := s.readBoth(ctx, nil, slot.A)
	if err != nil {
		return k, false, err
	}
	w, live := s.bands.Live(l)
	if live {
		k = s.learnUnlessKnown(w, before)
	}
	return k, live, nil
}

// reset ends the open window, if there is one. It is an operation.
func (s *slots) reset(ctx context.Context) (r answer) {
	defer s.forget()
	var e slot.Ending
	r.err = s.search(ctx, func(f *searching) (slot.Action, error) {
		found := e.Found
		a := s.bands.Reset(f.history, &e)
		if e.Found && !found {
			s.learnLive(f)
		}
		if a.Kind != slot.Done && s.tooLate(f) {
			return s.repeat(f)
		}
		r.sent = r.sent || a.Kind != slot.Done && a.Kind != slot.Look
		return a, nil
	})
	r.made = e.Found
	return r
}

// set ends the open window and opens one with a count. If it fails, a part of that may have been done.
func (s *slots) set(ctx context.Context, count uint64) answer {
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
		r.window = w
		r.sent = r.sent || o.sent
		r.err = o.err
		if o.err != nil || opened {
			return r
		}
	}
	r.err = overError(s.bands.Scale)
	return r
}
