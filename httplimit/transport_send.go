package httplimit

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
)

// sending is a request whose takes are granted.
//
// A sliding log counts it until a Scale and the Margin after that. If it is counted again before, there is no
// interval in which it arrives and does not count: of the requests that arrive in an interval of a Scale, all were
// counted when the last of them was granted. So it need not wait, and may have been sent, as long as it arrives no
// later than the Margin after it was counted for the last time.
type sending struct {
	t     *Transport
	ctx   context.Context
	o     *order
	again sync.WaitGroup // goroutines that count it again

	mu          sync.Mutex           // guards what follows
	turn        *throttr.Reservation // the last one
	counted     time.Time            // no earlier than this, for the last time
	late        bool                 // it was counted again since its turn
	connections int
}

// send sends a request that has a turn, and returns its last turn. Moved reports whether it was counted again because it
// was late, and arrives once: then a sliding log need not count that turn any more.
func (t *Transport) send(r *http.Request, o *order, turn *throttr.Reservation) (res *http.Response, last *throttr.Reservation, moved bool, err error) {
	s := &sending{t: t, ctx: context.WithoutCancel(r.Context()), o: o, turn: turn, counted: turn.Asked()}
	ended := make(chan struct{})
	for i, of := range o.of {
		if l := t.cfg.Limits[of]; t.exact(l) {
			s.again.Go(func() { s.countUntil(ended, o.takes[i], l.Scale) })
		}
	}
	res, err = t.cfg.Base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { s.connected(r.Context()) },
		WroteRequest: func(httptrace.WroteRequestInfo) { s.wrote() },
	})))
	close(ended)
	s.mu.Lock()
	traced := s.connections > 0
	s.mu.Unlock()
	if !traced {
		s.wrote()
	}
	s.again.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if moved = s.late; t.cfg.Strict {
		if moved = time.Since(s.turn.Asked()) > t.cfg.Margin; moved {
			s.charge(t.exact)
		}
	}
	return res, s.turn, moved && s.connections < 2, err
}

// exact reports whether a limit counts requests until their responses.
func (t *Transport) exact(l throttr.Limit) bool {
	return t.cfg.Strict && l.Algorithm != throttr.TokenBucket
}

// inexact is the opposite of exact.
func (t *Transport) inexact(l throttr.Limit) bool { return !t.exact(l) }

// isLate reports whether the request was counted so long ago that it is counted again.
func (s *sending) isLate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.counted) <= s.t.cfg.Margin/2 {
		return false
	}
	s.counted, s.late = now, true
	return true
}

// connected is called when the request has a connection, on which it is sent then. If it may have been sent on
// another one, or is so late that it does not count any more, it waits for another turn. If that fails, such as
// because ctx ends, it is sent nevertheless: net/http has no way to give up a connection.
func (s *sending) connected(ctx context.Context) {
	s.mu.Lock()
	s.connections++
	first, counted := s.connections == 1, s.counted
	s.mu.Unlock()
	late := s.isLate()
	if !late && first {
		return
	}
	again := s.t.inexact
	if !first || s.gone(counted) {
		if first { // it was not sent yet
			s.turn.Cancel(s.ctx)
			again = func(throttr.Limit) bool { return true }
		}
		if turn, err := s.t.limiter.WaitAll(ctx, s.o.takes...); err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.turn, s.counted, s.late = turn, turn.Asked(), false
			return
		}
	}
	s.charge(again)
}

// gone reports whether a request that is late, and was counted at a time, may not count any more: tokens of a bucket
// have come back since.
func (s *sending) gone(counted time.Time) bool {
	for _, of := range s.o.of {
		l := s.t.cfg.Limits[of]
		if l.Algorithm == throttr.TokenBucket || s.t.inexact(l) && time.Since(counted) > l.Scale {
			return true
		}
	}
	return false
}

// wrote is called when the request has been sent.
func (s *sending) wrote() {
	if s.isLate() {
		s.again.Go(func() { s.charge(s.t.inexact) }) // net/http uses a connection again only if it has not to wait
	}
}

// charge counts the request again in some limits.
func (s *sending) charge(counts func(throttr.Limit) bool) {
	for i, of := range s.o.of {
		if take := s.o.takes[i]; counts(s.t.cfg.Limits[of]) {
			s.t.limiter.Charge(s.ctx, take.Key, take.Limit, take.N)
		}
	}
}

// countUntil counts a take again before it is counted no more, until the request has ended.
func (s *sending) countUntil(ended <-chan struct{}, take throttr.Take, scale time.Duration) {
	tick := time.NewTicker(scale - min(scale/4, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			s.t.limiter.Charge(s.ctx, take.Key, take.Limit, take.N)
		}
	}
}
