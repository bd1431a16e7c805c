package pubsub

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/throttr-go/throttr/window"
)

// Message is what a [Subscription] delivers: a published message, or a gap.
type Message struct {
	Server  string // the server that sent it, as in Config.Servers
	Channel string // the channel
	Payload []byte // a copy that belongs to the reader; nil for a gap
	// Gap says that messages may be missing: the connection to Server was lost, and the
	// subscription is active again. It can also follow messages that came before the confirmation.
	Gap bool
}

// Totals count what happens to all subscriptions of a client.
type Totals struct {
	Open    atomic.Int64  // subscriptions that are open
	Dropped atomic.Uint64 // messages that were dropped because a queue was full
}

// Subscription is a queue of the messages of one channel. It is safe for concurrent use.
// Each message goes to one caller of Next.
type Subscription struct {
	totals      *Totals
	subscribers []*subscriber // one for each server; constant once Subscribe has returned

	ready chan struct{} // holds an element if the queue may not be empty, or the subscription is closed

	mu      sync.Mutex // guards the fields below
	closed  bool       // no more messages are accepted
	queue   queue
	dropped uint64
}

func newSubscription(q queue, totals *Totals) *Subscription {
	totals.Open.Add(1)
	return &Subscription{totals: totals, queue: q, ready: make(chan struct{}, 1)}
}

// Next removes and returns the oldest message of the queue. If the queue is empty, it waits
// for a message. The error is that of ctx, or [window.ErrClosed] if the subscription or its
// manager is closed and the queue is empty.
func (s *Subscription) Next(ctx context.Context) (Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			wake(s.ready) // another caller, as this one may have taken the element
			return Message{}, err
		}
		m, ok, closed := s.pop()
		switch {
		case ok:
			m.Payload = bytes.Clone(m.Payload) // other queues refer to the same
			return m, nil
		case closed:
			return Message{}, window.ErrClosed
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
		}
	}
}

// Dropped returns how many messages were dropped because the queue was full. The count is
// exact. It does not include what was published while a connection was lost.
func (s *Subscription) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Close ends the subscription. Messages in its queue can still be read. If it was the last
// one to its channel, the server is informed in the background.
func (s *Subscription) Close() {
	s.end()
	for _, one := range s.subscribers {
		one.leave()
	}
}

// end makes the subscription accept no more messages.
func (s *Subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.totals.Open.Add(-1)
	wake(s.ready)
}

// pop removes the oldest message. It wakes another caller of Next if others are left, or none will come.
func (s *Subscription) pop() (m Message, ok, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok = s.queue.pop()
	if !s.queue.empty() || s.closed {
		wake(s.ready)
	}
	return m, ok, s.closed
}

// push delivers a message or a gap. It never blocks.
func (s *Subscription) push(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.queue.push(m) {
		s.dropped++
		s.totals.Dropped.Add(1)
	}
	wake(s.ready)
}

// wake gives a channel with room for one element that element, if it has none.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
