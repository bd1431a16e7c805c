package fixedwindow

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// outcome is the outcome of hits that share a request.
type outcome struct {
	result slot.Outcome
	window slot.Window // unless the result is Missed: as of the last hit, or, if it is Full, without the hits
	conn   *conn.Conn  // where takes were counted; nil if there are none
	err    error       // fails all hits
	sent   bool        // whether hits that failed may have been counted
}

// count counts hits: in the known window, or in one that it opens, as was planned. It takes one round trip. It is
// called by the goroutine that serves the queue.
func (s *countState) count(ctx context.Context, hits *shared, p plan) outcome {
	o := s.countSum(ctx, hits, p, hits.sum)
	for tries := 1; hits.charge && o.result == slot.Full && o.err == nil; tries++ {
		if tries > maxTries {
			return outcome{result: slot.Missed}
		}
		n := hits.sum // for which there may be room by now: takes that others refuse are given back
		if tries > 1 {
			n = s.bands.Largest - o.window.Count // so that the count stays at the largest
		}
		o = s.countSum(ctx, hits, p, n)
	}
	return o
}

// countSum counts hits whose sum is n, if the counter holds it.
func (s *countState) countSum(ctx context.Context, hits *shared, p plan, n uint64) outcome {
	switch k := s.current(); {
	case k.ok:
		return s.join(ctx, s.bands.Join(k.Slot, k.Until), hits.takes, n)
	case p.conn != nil:
		return s.openPlanned(ctx, p, hits.takes, n)
	}
	return outcome{result: slot.Missed}
}

// join counts n hits in the known window.
//
// A call that is not written by a.By is sent nevertheless. Rule 3 is about what rests on a lookup. A call of hits
// rests on its own QUERY (rule 1), and a response that comes after a.By grants nothing (rule 2).
func (s *countState) join(ctx context.Context, a slot.Action, takes bool, n uint64) outcome {
	var c *conn.Conn
	if takes {
		// What is given back has to follow takes on the connection of the link (rule 11). A call there that was not sent
		// fails: the link, unlike the pool, sends nothing again.
		var err error
		if c, err = s.link.connect(ctx); err != nil {
			return outcome{err: err}
		}
	}
	e, sent, err := s.act(ctx, c, a, n)
	if err != nil {
		return outcome{err: err, sent: sent}
	}
	o := s.joined(a, n, e)
	o.conn = c
	return o
}

// joined returns the outcome of n hits, given what their action has done.
func (s *countState) joined(a slot.Action, n uint64, e slot.Effects) (o outcome) {
	if !e.Received.Before(a.By) {
		s.forget()
		return outcome{err: overError(s.bands.Scale), sent: true}
	}
	o.result, o.window = s.bands.Result(a, n, e)
	return o
}

// openPlanned opens a window that counts n hits, as planOpening has returned.
func (s *countState) openPlanned(ctx context.Context, p plan, takes bool, n uint64) (o outcome) {
	if err := s.janitor.actionBegins(s); err != nil {
		return outcome{err: err}
	}
	e, sent, err := s.act(ctx, p.conn, p.action, n)
	s.janitor.actionEnds(s, e.Armed[p.action.Slot])
	switch {
	case err == errAgain:
		return outcome{result: slot.Missed}
	case err != nil:
		return outcome{err: err, sent: sent}
	}
	o.result, o.window = s.bands.Result(p.action, n, e)
	if p.action.Kind == slot.Create && o.result == slot.Missed {
		s.failed++
		s.failedAt = time.Now()
	}
	if takes {
		o.conn = p.conn
	}
	return o
}

// conclude learns the window of an outcome, and returns it as callers see it. It returns false if hits failed, or have
// to be counted again because the window was over. The caller holds mu.
func (s *countState) conclude(o *outcome) (w window.Window, ok bool) {
	switch {
	case o.err != nil:
		return w, false
	case o.result == slot.Missed:
		s.known.ok = false
		return w, false
	}
	s.failed = 0
	s.known = s.identify(o.window, o.conn)
	return s.known.window(s.bands.Scale, s.known.Received), true
}

// concluded is conclude for callers that do not hold mu.
func (s *countState) concluded(o *outcome) (w window.Window, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conclude(o)
}
