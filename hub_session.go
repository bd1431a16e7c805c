package throttr

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// chunk is how many changes are sent at once. The server may have EVENTs
// outstanding besides, and drops what is beyond 1024 (H4).
const chunk = 64

// run serves the subscriptions until there are none left, or the hub is closed.
func (h *hub[T]) run() {
	most := min(h.pool.cfg.MaxRetryPause, math.MaxInt64/2) // a tenth more does not wrap
	least := min(h.pool.cfg.RetryPause, most)
	pause := least
	for h.needed() {
		established, err := h.session()
		if err == nil {
			continue
		}
		if established {
			pause = least
		}
		// A tenth more or less keeps the clients of a server that returns apart.
		h.rest(pause - pause/10 + rand.N(pause/5+1))
		pause += min(pause, most-pause)
	}
}

// needed reports whether there are subscriptions. If not, its caller, who has no
// connection, is to end.
func (h *hub[T]) needed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dirty = h.dirty[:0]
	for name, t := range h.topics {
		t.dirty = false
		if len(t.seats) == 0 {
			delete(h.topics, name)
		}
	}
	if h.closed || len(h.topics) == 0 {
		h.running, h.cause = false, nil
		return false
	}
	return true
}

// rest waits, unless there is nobody left to wait for.
func (h *hub[T]) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for h.occupied() {
		select {
		case <-t.C:
			return
		case <-h.ctx.Done():
			return
		case <-h.wake:
		}
	}
}

// occupied reports whether there is a seat.
func (h *hub[T]) occupied() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		if len(t.seats) > 0 {
			return true
		}
	}
	return false
}

// session is the life of one connection. It returns nil when nobody needs it any more,
// and whether all that were subscribed before it have been so again.
func (h *hub[T]) session() (established bool, err error) {
	c, err := h.connect()
	if err != nil {
		h.unreachable(err)
		return false, err
	}
	established, err = h.serve(c)
	c.close(ErrClosed) // nothing is delivered any more when it returns
	h.disconnected(err)
	return established, err
}

// connect makes a connection and learns its id.
func (h *hub[T]) connect() (*conn[T], error) {
	p := h.pool
	nc, early, err := p.connect(h.ctx)
	if err != nil {
		p.counts.failures.Add(1)
		return nil, err
	}
	c := newEventConn(nc, early, p, h.event, h.ended)
	cl, err := h.request(c, codec.WhoAmI{})
	if err != nil {
		c.close(ErrClosed)
		return nil, fmt.Errorf("%w to %s: %w", ErrConnect, p.server, err)
	}
	me, _, err := codec.DecodeWhoAmIResponse(cl.answers[0].value)
	if err != nil {
		c.close(ErrClosed)
		return nil, fmt.Errorf("%w to %s: %w", ErrConnect, p.server, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn, h.id = c, me.ID
	for _, t := range h.topics {
		h.touch(t)
	}
	return c, nil
}

// ended is called by a connection that has ended.
func (h *hub[T]) ended(c *conn[T]) {
	if !errors.Is(c.err, ErrClosed) {
		h.pool.counts.failures.Add(1)
	}
}

// unreachable fails those who wait for a first connection. The others wait on.
func (h *hub[T]) unreachable(err error) {
	if h.ctx.Err() != nil {
		return // close says so
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause = err
	for _, t := range h.topics {
		for s := range t.seats {
			if !s.confirmed {
				s.refuse(err)
			}
		}
	}
}

// disconnected notes that the connection is over, for a reason if it was lost.
func (h *hub[T]) disconnected(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn = nil
	for _, t := range h.topics {
		t.live = false
		for s := range t.seats {
			if s.confirmed {
				t.gap = true
			} else if err != nil {
				if s.losses++; s.losses > h.pool.cfg.MaxRetries {
					s.refuse(err)
				}
			}
		}
	}
}

// serve has the server know what changes, until nobody is left or the connection is
// lost.
func (h *hub[T]) serve(c *conn[T]) (established bool, err error) {
	tick := time.NewTicker(h.pool.cfg.HealthInterval)
	defer tick.Stop()
	for {
		join, part := h.changes()
		if len(join)+len(part) > 0 {
			if err := h.change(c, join, part); err != nil {
				return established, err
			}
			continue
		}
		if h.settled() {
			return true, nil
		}
		established = true
		select {
		case <-h.wake:
		case <-tick.C:
			// A server that has gone silent is noticed.
			if _, err := h.request(c, codec.Query{Key: []byte(pingKey)}); err != nil {
				return true, err
			}
		case <-c.done:
			return true, c.failure()
		case <-h.ctx.Done():
			return true, nil
		}
	}
}

// settled notes that the server knows all, and reports whether nobody is left.
func (h *hub[T]) settled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause = nil
	return len(h.topics) == 0
}

// changes returns some of the topics that the server must be told about: to SUBSCRIBE,
// and to UNSUBSCRIBE.
func (h *hub[T]) changes() (join, part []*topic[T]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := min(chunk, h.pool.cfg.MaxInFlight)
	n := 0
	for ; n < len(h.dirty) && len(join)+len(part) < most; n++ {
		t := h.dirty[n]
		t.dirty = false
		switch wanted := len(t.seats) > 0; {
		case wanted && !t.live && h.given(t):
			h.confirm(t)
		case wanted && !t.live:
			t.sent = true
			join = append(join, t)
		case !wanted && t.live && !h.given(t):
			t.live = false
			part = append(part, t)
		case !wanted:
			h.forget(t)
		}
	}
	h.dirty = append(h.dirty[:0], h.dirty[n:]...)
	return join, part
}

// given reports whether the server has subscribed the connection by itself (H8). To
// SUBSCRIBE would double what is delivered (H10).
func (h *hub[T]) given(t *topic[T]) bool {
	return t.name == AllChannel || t.name == OwnChannel || t.name == h.id.String()
}

func (h *hub[T]) forget(t *topic[T]) {
	if h.topics[t.name] == t {
		delete(h.topics, t.name)
	}
}

// confirm tells the seats of t that the server delivers. The mutex is held.
func (h *hub[T]) confirm(t *topic[T]) {
	t.live = true
	h.tellGap(t)
	for s := range t.seats {
		s.settle(nil)
	}
}

// change tells the server, and waits for its answers.
func (h *hub[T]) change(c *conn[T], join, part []*topic[T]) error {
	requests := make([]codec.Request, 0, len(join)+len(part))
	for _, t := range join {
		requests = append(requests, codec.Subscribe{Channel: []byte(t.name)})
	}
	for _, t := range part {
		requests = append(requests, codec.Unsubscribe{Channel: []byte(t.name)})
	}
	cl, err := h.request(c, requests...)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, t := range join {
		if cl.answers[i].ok {
			h.confirm(t)
		} else if h.reject(t) {
			err = ErrRefused
		}
	}
	for _, t := range part {
		if len(t.seats) == 0 && !t.dirty {
			h.forget(t)
		}
	}
	return err
}

// reject fails those who wait for t. It returns true where some had it before.
func (h *hub[T]) reject(t *topic[T]) (held bool) {
	for s := range t.seats {
		if s.confirmed {
			held = true
		} else {
			s.refuse(ErrRefused)
		}
	}
	return held
}

// request sends requests in one write, and waits for the answers. There is no other one
// under way: if the server has dropped an answer among too many EVENTs (H4), the
// connection ends before another could be taken for it, though EVENTs come and the
// watchdog sees no stall.
func (h *hub[T]) request(c *conn[T], requests ...codec.Request) (*call[T], error) {
	cl := newCall[T]()
	cl.reset()
	for _, r := range requests {
		if err := cl.add(r); err != nil {
			return nil, err
		}
	}
	if _, err := c.push(cl, false); err != nil {
		<-c.done
		return nil, c.failure()
	}
	bound := h.pool.cfg.StallTimeout
	bound += min(bound/2, math.MaxInt64-bound) // the watchdog comes first
	ctx, cancel := context.WithTimeout(h.ctx, bound)
	defer cancel()
	select {
	case <-cl.done:
		return cl, cl.err
	case <-ctx.Done():
	}
	if h.ctx.Err() != nil {
		c.fail(ErrClosed)
	} else {
		c.fail(fmt.Errorf("%w: no answer to a subscription for %v", ErrStalled, bound))
	}
	<-cl.done
	return cl, cl.err
}
