package fixedwindow

import (
	"context"

	"github.com/throttr-go/throttr/internal/slot"
)

// reset ends the open window, if there is one. It is an operation.
func (s *slots) reset(ctx context.Context) (r answer) {
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
		if opened || o.err != nil {
			return answer{window: w, sent: r.sent || o.sent, err: o.err}
		}
	}
	r.err = overError(s.bands.Scale)
	return r
}
