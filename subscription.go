package throttr

import (
	"bytes"
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/throttr-go/throttr/codec"
)

// Message is what a [Subscription] delivers.
type Message struct {
	Server  string // where it was published, as in Config.Servers
	Channel string // on which channel; for OwnChannel, the connection's id in 32 hexadecimal digits
	Payload []byte // the subscriber's own copy
	// Gap tells, instead of a payload, that the connection to Server was lost, and that
	// the subscription is in force again: what was published meanwhile is missing. It
	// comes before any message of the new connection.
	Gap bool
}

// Subscription is a queue of the messages of one channel. [Client.Subscribe] makes
// one. It is safe for concurrent use; each message goes to one caller of Next.
type Subscription struct {
	limit    int
	overflow Overflow
	totals   *subscriptionTotals
	places   []place // fixed before anybody else sees the Subscription

	ready chan struct{} // one element where there may be something to take
	ended chan struct{} // closed with the Subscription

	mu      sync.Mutex
	closed  bool
	gaps    []Message // those older than all of queue, one per server
	queue   fifo[delivery]
	held    int // messages in queue, gaps not counted
	dropped uint64
}

// delivery is a message in a queue.
type delivery struct {
	Message
	shared bool // other queues have the same payload
}

// place is a subscription's part on one server.
type place interface {
	name() string
	connID() (codec.ConnID, bool)
	leave()
}

// subscriptionTotals are a client's.
type subscriptionTotals struct {
	open    atomic.Int64
	dropped atomic.Uint64
}

func newSubscription(o subscribeOptions, totals *subscriptionTotals) *Subscription {
	totals.open.Add(1)
	return &Subscription{
		limit: o.queue, overflow: o.overflow, totals: totals,
		ready: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// Next returns the oldest message of the queue, and waits for one if there is none. The
// error is ctx's; or [ErrClosed], once the subscription or its client is closed and the
// queue is empty.
func (s *Subscription) Next(ctx context.Context) (Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Message{}, err
		}
		d, ok, closed := s.take()
		if ok {
			if d.shared {
				d.Payload = bytes.Clone(d.Payload)
			}
			return d.Message, nil
		}
		if closed {
			return Message{}, ErrClosed
		}
		select {
		case <-s.ready:
		case <-s.ended:
		case <-ctx.Done():
		}
	}
}

// Messages yields what Next returns. The last pair has the error that ended it: that of
// ctx, or [ErrClosed].
func (s *Subscription) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for {
			m, err := s.Next(ctx)
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// Dropped returns how many messages came and found the queue full, so that one was lost,
// the new or the oldest one. It is exact. What was published while the connection was
// lost is not part of it.
func (s *Subscription) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// ConnID returns the id of the connection on which the server, an element of
// Config.Servers, delivers. What is published there on the channel that it is the name of
// reaches those who subscribe to [OwnChannel]. It returns false where the
// subscription is not on that server, or its connection is lost at the moment. A
// new connection has another id.
func (s *Subscription) ConnID(server string) (codec.ConnID, bool) {
	for _, p := range s.places {
		if p.name() == server {
			return p.connID()
		}
	}
	return codec.ConnID{}, false
}

// Close ends the subscription. What is in its queue can still be taken. The server is
// told in the background, if nobody else of the client is subscribed to the channel. It
// always returns nil.
func (s *Subscription) Close() error {
	s.end()
	for _, p := range s.places {
		p.leave()
	}
	return nil
}

// end lets no more messages in.
func (s *Subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.totals.open.Add(-1)
	close(s.ended)
}

// take takes the oldest message, and wakes the next caller if it leaves some.
func (s *Subscription) take() (d delivery, ok, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.gaps) > 0:
		d.Message = s.gaps[0]
		s.gaps = s.gaps[1:]
	case s.queue.len() > 0:
		if d = s.queue.pop(); !d.Gap {
			s.held--
		}
	default:
		return d, false, s.closed
	}
	if len(s.gaps) > 0 || s.queue.len() > 0 {
		s.signal()
	}
	return d, true, s.closed
}

func (s *Subscription) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// push puts a message into the queue. It never blocks.
func (s *Subscription) push(d delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.held == s.limit {
		s.dropped++
		s.totals.dropped.Add(1)
		if s.overflow == DropNewest {
			return
		}
		s.dropOldest()
	}
	s.held++
	s.queue.push(d)
	s.signal()
}

// dropOldest removes the oldest message, but no gap.
func (s *Subscription) dropOldest() {
	for {
		d := s.queue.pop()
		if !d.Gap {
			s.held--
			return
		}
		s.keepGap(d.Message)
	}
}

// keepGap makes m the last of the gaps before the queue, where it stands for an older one
// of the same server.
func (s *Subscription) keepGap(m Message) {
	for i, g := range s.gaps {
		if g.Server == m.Server {
			s.gaps = append(s.gaps[:i], s.gaps[i+1:]...)
			break
		}
	}
	s.gaps = append(s.gaps, m)
}

// pushGap puts a gap into the queue, where it has no bound but cannot pile up: between two
// messages there is one per server at most.
func (s *Subscription) pushGap(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	defer s.signal()
	for i := s.queue.len() - 1; i >= 0 && s.queue.at(i).Gap; i-- {
		if s.queue.at(i).Server == m.Server {
			s.queue.set(i, delivery{Message: m})
			return
		}
	}
	if s.queue.len() == 0 {
		s.keepGap(m)
		return
	}
	s.queue.push(delivery{Message: m})
}
