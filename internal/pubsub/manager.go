package pubsub

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

// Options are the settings of a [Manager]. All must be set; none has a default.
type Options struct {
	Server string // the address that messages and errors name
	// Open makes a connection that hands its EVENTs to a function.
	Open func(ctx context.Context, onEvent func(conn.Event)) (*conn.Conn, error)

	MaxInFlight    int           // requests in flight on the connection, at most
	MaxRetries     int           // lost connections that a Subscribe survives
	HealthInterval time.Duration // between two checks of an idle connection
	MinBackoff     time.Duration // the first pause between two attempts to connect
	MaxBackoff     time.Duration // the longest one
}

// Manager has the subscriptions of one server. It knows which subscribers each channel has,
// and hands EVENTs to them. While there are channels, a goroutine keeps a connection and
// sends a SUBSCRIBE or UNSUBSCRIBE for each change; see run.
//
// These hold whenever mu is not held:
//
//   - The goroutine runs while there are channels. A manager that is closed has no subscribers.
//   - After each change of a channel's subscribers, wakeup holds an element, or the goroutine is
//     about to compare all channels with what the server has.
//   - No channel is subscribed while there is no connection.
//   - A subscriber to whom a gap is due has received nothing since messages may be missing.
type Manager struct {
	o      Options
	ctx    context.Context // ends soon after Close is called
	cancel context.CancelFunc
	wg     sync.WaitGroup // of the goroutine
	wakeup chan struct{}  // holds an element if the goroutine is to look at the channels

	// mu guards the fields below, and those of channels and subscribers that say so. The
	// mutex of a Subscription may be locked while mu is held, but not the other way round.
	mu       sync.Mutex
	closed   bool
	running  bool                // the goroutine exists
	cause    error               // why an attempt to connect failed; nil once all is restored
	channels map[string]*channel // by name
	conn     *conn.Conn          // nil if there is none
}

// channel is a channel that has subscribers, or still has to be unsubscribed from. All its
// subscribers share one SUBSCRIBE (H10). Manager.mu guards all fields but name.
type channel struct {
	name        string
	subscribers []*subscriber // elements never change: EVENTs are handed out without mu
	subscribed  bool          // the server delivers its messages, and no UNSUBSCRIBE has been sent
	requested   bool          // a SUBSCRIBE has been sent, on this or an earlier connection
	events      uint64        // that were handed out
}

// subscriber is the part of a subscription that concerns one server.
type subscriber struct {
	manager *Manager
	sub     *Subscription
	channel *channel
	result  chan error // receives one element: nil when confirmed, or why it has failed

	// Manager.mu guards the fields below.
	confirmed bool   // by the server, on this or an earlier connection
	losses    int    // connections lost while it was waiting for that
	gap       bool   // it must receive a gap before the next message
	joined    uint64 // channel.events when it was added
}

// NewManager returns a manager without subscriptions. It makes no connection yet.
func NewManager(o Options) *Manager {
	m := &Manager{o: o, wakeup: make(chan struct{}, 1), channels: make(map[string]*channel)}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Connected reports whether there is a connection.
func (m *Manager) Connected() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conn != nil
}

// Close ends all subscriptions and the connection. It returns when no goroutine is left. It
// may be called more than once.
func (m *Manager) Close() {
	m.endAll()
	defer time.AfterFunc(conn.CloseGrace, m.cancel).Stop()
	m.wg.Wait()
	m.cancel()
}

// endAll ends all subscriptions, and accepts no others. The goroutine ends as it does after the last
// subscription.
func (m *Manager) endAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, ch := range m.channels {
		ch.failWaiting(window.ErrClosed)
		for _, s := range ch.subscribers {
			s.sub.end()
		}
		ch.subscribers = nil
	}
	wake(m.wakeup)
}

// subscribe adds a subscriber to a channel. It does not wait for the confirmation.
func (m *Manager) subscribe(sub *Subscription, name string) *subscriber {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &subscriber{manager: m, sub: sub, channel: &channel{name: name}, result: make(chan error, 1)}
	switch {
	case m.closed:
		s.result <- window.ErrClosed
		return s
	case m.cause != nil:
		s.result <- fmt.Errorf("%w: %w", window.ErrUnavailable, m.cause)
		return s
	}
	if ch := m.channels[name]; ch != nil {
		s.channel = ch
	}
	m.channels[name] = s.channel
	s.joined = s.channel.events
	s.channel.subscribers = append(slices.Clip(s.channel.subscribers), s)
	if s.channel.subscribed {
		s.confirm()
		return s
	}
	wake(m.wakeup)
	if !m.running {
		m.running = true
		m.wg.Go(m.run)
	}
	return s
}

// deliver hands an EVENT to its subscribers. The connection calls it for one EVENT at a time,
// in the order of arrival.
//
// The messages are pushed without mu, so that many subscribers do not delay others. They
// still follow the gap that recipients has sent: the next one is due only after this
// connection has ended, and then deliver is not running.
func (m *Manager) deliver(e conn.Event) {
	to := m.recipients(e.Channel)
	if len(to) == 0 {
		return
	}
	message := Message{Server: m.o.Server, Channel: string(e.Channel), Payload: bytes.Clone(e.Payload)}
	for _, s := range to {
		s.sub.push(message)
	}
}

// recipients returns the subscribers of the channel with this name. Each of them has received its gap when
// recipients returns.
func (m *Manager) recipients(name []byte) []*subscriber {
	m.mu.Lock()
	defer m.mu.Unlock()
	ch := m.channels[string(name)]
	if ch == nil {
		return nil
	}
	m.sendGap(ch)
	ch.events++
	return ch.subscribers
}

// interrupt notes that messages of ch may be missing from now on. A gap is due to its confirmed subscribers, and to
// those that have received messages while they wait to be confirmed. The caller holds Manager.mu.
func (ch *channel) interrupt() {
	for _, s := range ch.subscribers {
		s.gap = s.gap || s.confirmed || ch.events > s.joined
	}
}

// sendGap sends a gap to the subscribers of ch to whom one is due. The caller holds mu.
func (m *Manager) sendGap(ch *channel) {
	gap := Message{Server: m.o.Server, Channel: ch.name, Gap: true}
	for _, s := range ch.subscribers {
		if s.gap {
			s.gap = false
			s.sub.push(gap)
		}
	}
}

// confirm notes that the server delivers the messages of ch. The caller holds mu.
func (m *Manager) confirm(ch *channel) {
	ch.subscribed = true
	m.sendGap(ch)
	for _, s := range ch.subscribers {
		s.confirm()
	}
}

// confirm ends the wait of a subscriber with success. The caller holds Manager.mu.
func (s *subscriber) confirm() {
	if !s.confirmed {
		s.confirmed = true
		s.result <- nil
	}
}

// fail ends the wait of a subscriber with an error, and removes it from its channel. The caller
// holds Manager.mu.
func (s *subscriber) fail(err error) {
	s.remove()
	s.result <- err
}

// failWaiting fails the subscribers that are not confirmed. The caller holds Manager.mu.
func (ch *channel) failWaiting(err error) {
	for _, s := range ch.subscribers {
		if !s.confirmed {
			s.fail(err)
		}
	}
}

// remove removes a subscriber from its channel. If it was the last one, the goroutine
// unsubscribes. The caller holds Manager.mu.
func (s *subscriber) remove() {
	ch := s.channel
	ch.subscribers = slices.DeleteFunc(slices.Clone(ch.subscribers), func(o *subscriber) bool { return o == s })
	wake(s.manager.wakeup)
}

// wait waits until the subscriber is confirmed or has failed. Sent reports whether a SUBSCRIBE may have
// been sent.
func (s *subscriber) wait(ctx context.Context) (sent bool, err error) {
	select {
	case err = <-s.result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.manager.mu.Lock()
	defer s.manager.mu.Unlock()
	return s.channel.requested, err
}

// leave ends the part of a subscription that concerns the server.
func (s *subscriber) leave() {
	s.manager.mu.Lock()
	defer s.manager.mu.Unlock()
	s.remove()
}
