package fixedwindow

import (
	"context"
	"errors"
	"time"

	"github.com/throttr-go/throttr/internal/slot"
)

// maxTogether bounds the takes that are made together, so that a call fits one read of a server.
const maxTogether = 12

// errInTurn says that takes can't be made together.
var errInTurn = errors.New("take in turn")

// takeTogether makes takes of known windows with one call for each link, one link after the other. If
// one is refused, it gives back the others.
//
// It returns errInTurn, and has taken nothing, if a window is not known to be open with enough room, unless it
// was read not long ago, which refuses all; or if a hit or take on one of them is in flight, as others then
// share the next request.
func (b *Backend) takeTogether(ctx context.Context, takes []take) (granted, sent bool, err error) {
	known, mayRefuse, fit := recallAll(takes)
	if known && !fit && mayRefuse {
		return false, false, nil
	}
	if !fit || len(takes) > maxTogether || !hold(takes) {
		return false, false, errInTurn
	}
	if _, _, fit := recallAll(takes); !fit {
		release(takes)
		return false, false, errInTurn
	}
	return b.countTogether(ctx, takes)
}

// recallAll sets the windows of takes to what is known of them, and reports whether all takes fit.
func recallAll(takes []take) (known, mayRefuse, fit bool) {
	mayRefuse, fit = true, true
	for i := range takes {
		knownOne, mayRefuseOne := takes[i].recall()
		if !knownOne {
			return false, false, false
		}
		mayRefuse, fit = mayRefuse && mayRefuseOne, fit && takes[i].hasRoom()
	}
	return true, mayRefuse, fit
}

// hold holds the queues of takes. It returns false, and holds none, if the takes can't be made
// together.
func hold(takes []take) bool {
	for i := range takes {
		if takes[i].N == 0 || !takes[i].state.hold() {
			release(takes[:i])
			return false
		}
	}
	return true
}

// release releases the queues of takes.
func release(takes []take) {
	for i := range takes {
		takes[i].state.release(takes[i].uncertain)
	}
}

// countTogether makes the takes, whose queues are held, and releases them.
func (b *Backend) countTogether(ctx context.Context, takes []take) (granted, sent bool, err error) {
	for begun, end := 0, 0; begun < len(takes); begun = end {
		for end < len(takes) && takes[end].state.link == takes[begun].state.link {
			end++
		}
		fit, sent, err := b.countOn(ctx, takes[begun:end])
		if !fit || err != nil {
			b.giveBackHeld(ctx, takes)
			return false, sent || err != nil && begun > 0, err
		}
	}
	release(takes)
	return true, false, nil
}

// giveBackHeld gives back what the server has counted of takes, even if ctx ends, and then releases them. The
// counts of their windows are then those before the takes, unless ctx has ended.
func (b *Backend) giveBackHeld(ctx context.Context, takes []take) {
	b.finish(ctx, takes, func(ctx context.Context, t *take) {
		if t.counted {
			t.given()
			t.state.subtract(t.N)
			t.state.giveBackTo(ctx, t.outcome.window, t.outcome.conn, t.N)
		}
		t.state.release(t.uncertain)
	})
}

// countOn makes the takes of windows with one link, and reports whether all are within their limits. It returns
// errInTurn if a window was over by then.
func (b *Backend) countOn(ctx context.Context, part []take) (fit, sent bool, err error) {
	first := part[0].state
	c, err := first.link.connect(ctx)
	if err != nil {
		return false, false, failed(&part[0].Take, err)
	}
	cl := b.Calls.Get()
	cl.SingleRead = true
	actions := make([]slot.Action, len(part))
	for i := range part {
		s := part[i].state
		k := s.current()
		actions[i] = s.bands.Join(k.Slot, k.Until)
		s.records.add(cl, actions[i], part[i].N)
		cl.MostTTL = max(cl.MostTTL, s.bands.Top)
	}
	var e slot.Effects
	e.Sent = time.Now()
	sent, err = first.link.send(ctx, c, cl)
	e.Received = time.Now()
	if err != nil {
		for i := range part {
			part[i].uncertain = sent
		}
		return false, sent, failed(&part[0].Take, err)
	}
	fit, sent = true, false
	responses := cl.Responses
	for i := range part {
		t := &part[i]
		responses = t.state.records.effects(&e, actions[i], t.N, responses)
		t.outcome = t.state.joined(actions[i], t.N, e)
		t.outcome.conn = c
		open, fits := t.conclude()
		fit = fit && fits
		switch {
		case t.outcome.err != nil:
			sent = true
			err = failed(&t.Take, t.outcome.err)
		case !open && err == nil:
			err = errInTurn
		}
	}
	b.Calls.Put(cl)
	return fit, sent, err
}

// conclude learns what has become of the take, unless it has failed. It reports whether its window was still open, and
// whether the take is within its limit.
func (t *take) conclude() (open, fits bool) {
	w, open := t.state.concluded(&t.outcome)
	if t.outcome.err != nil {
		return false, true
	}
	full := t.outcome.result == slot.Full
	t.counted = open && !full
	t.window = bounded(w)
	if full || t.window.Count > t.Limit.Max {
		refuse(&t.window, &t.Limit, t.N)
		return open, false
	}
	return open, true
}
