package pubsub

import (
	"context"

	"github.com/throttr-go/throttr/codec"
)

// channel is a channel that has subscribers, or still has to be unsubscribed from. All its
// subscribers share one SUBSCRIBE (H10). On each connection it goes through these phases:
//
//   - not subscribed, as every channel is on a new connection;
//   - SUBSCRIBE outstanding. This phase is skipped if the server has subscribed the
//     connection by itself;
//   - subscribed, once the server has confirmed;
//   - UNSUBSCRIBE outstanding, once the last subscriber has left. It counts as not
//     subscribed, so that a new subscriber causes a SUBSCRIBE.
type channel[T codec.Value] struct {
	name string

	// Manager.mu guards the fields below.
	subscribers map[*subscriber[T]]struct{}
	list        []*subscriber[T] // the same, made when needed; its elements never change
	subscribed  bool             // the server delivers its messages
	requested   bool             // a SUBSCRIBE has been sent, on this or an earlier connection
	changed     bool             // it is in Manager.changed
	gap         bool             // its confirmed subscribers must receive a gap first
}

// subscriber is the part of a subscription that concerns one server.
type subscriber[T codec.Value] struct {
	manager *Manager[T]
	sub     *Subscription
	channel *channel[T]
	result  chan error // receives one element: nil when confirmed, or why it failed

	// Manager.mu guards the fields below.
	phase  subscriberPhase
	losses int // connections lost while it was waiting
}

// subscriberPhase says how far a subscriber is. It changes once: waiting is the first.
type subscriberPhase uint8

const (
	waiting   subscriberPhase = iota // the server has not confirmed yet
	confirmed                        // the server has confirmed, on this or an earlier connection
	failed                           // the subscription could not be made
)

// confirm ends the wait of a subscriber with success. The caller holds Manager.mu.
func (s *subscriber[T]) confirm() {
	if s.phase == waiting {
		s.phase = confirmed
		s.result <- nil
	}
}

// fail ends the wait of a subscriber with an error, and removes it from its channel. A
// subscriber that is not waiting stays as it is. The caller holds Manager.mu.
func (s *subscriber[T]) fail(err error) {
	if s.phase == waiting {
		s.phase = failed
		s.remove()
		s.result <- err
	}
}

// remove removes a subscriber from its channel. If it was the last one, the goroutine
// unsubscribes. The caller holds Manager.mu.
func (s *subscriber[T]) remove() {
	ch := s.channel
	if _, ok := ch.subscribers[s]; !ok {
		return
	}
	delete(ch.subscribers, s)
	ch.list = nil
	if len(ch.subscribers) == 0 {
		s.manager.markChanged(ch)
	}
}

// wait waits until the subscriber is confirmed or has failed.
func (s *subscriber[T]) wait(ctx context.Context) error {
	select {
	case err := <-s.result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// requested reports whether a SUBSCRIBE for the subscriber may have been sent.
func (s *subscriber[T]) requested() bool {
	s.manager.mu.Lock()
	defer s.manager.mu.Unlock()
	return s.channel.requested
}

// leave removes the subscriber from its channel.
func (s *subscriber[T]) leave() {
	s.manager.mu.Lock()
	defer s.manager.mu.Unlock()
	s.remove()
}

func (s *subscriber[T]) server() string { return s.manager.o.Server }

func (s *subscriber[T]) connID() (codec.ConnID, bool) {
	s.manager.mu.Lock()
	defer s.manager.mu.Unlock()
	return s.manager.id, s.manager.conn != nil
}
