package pubsub

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

// Options are the settings of a [Manager]. All must be set; none has a default.
type Options[T codec.Value] struct {
	Server string // the address that messages and errors name
	// Open dials the server and checks its value size. It also returns the bytes that came
	// after the responses to that check. Its errors match [dial.ErrConnect].
	Open      func(ctx context.Context) (net.Conn, []byte, error)
	OnFailure func() // called when a connection is lost; Open counts its own failures
	Calls     *conn.CallPool[T]
	Counters  *conn.Counters

	MaxInFlight    int           // requests in flight on the connection, at most
	MaxQueued      int           // requests that wait to be written, at most
	MaxRetries     int           // lost connections that a Subscribe survives
	StallTimeout   time.Duration // how long the server may be silent while a request is in flight
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
//   - The goroutine runs while there are channels, unless the manager is closed.
//   - A channel that has subscribers but is not subscribed, or the reverse, is in changed,
//     or a request for it is outstanding, or there is no connection. A new connection puts
//     every channel into changed.
//   - No channel is subscribed while there is no connection.
//   - If a channel has a gap, its confirmed subscribers have received no message of the
//     current connection.
type Manager[T codec.Value] struct {
	o      Options[T]
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // of the goroutine
	wakeup chan struct{}  // holds an element if changed has grown

	// mu guards the fields below, and those of channels and subscribers that say so. The
	// mutex of a Subscription may be locked while mu is held, but not the other way round.
	mu       sync.Mutex
	closed   bool
	running  bool                   // the goroutine exists
	cause    error                  // why an attempt to connect failed; nil once all is restored
	channels map[string]*channel[T] // by name
	changed  []*channel[T]          // channels that the goroutine must check
	conn     *conn.Conn[T]          // nil if there is none, or its id is not yet known
	id       codec.ConnID           // of conn
}

// NewManager returns a manager without subscriptions. It makes no connection yet.
func NewManager[T codec.Value](o Options[T]) *Manager[T] {
	m := &Manager[T]{o: o, wakeup: make(chan struct{}, 1), channels: make(map[string]*channel[T])}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Server returns Options.Server.
func (m *Manager[T]) Server() string { return m.o.Server }

// Connected reports whether there is a connection.
func (m *Manager[T]) Connected() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conn != nil
}

// Close ends all subscriptions and the connection. It returns when no goroutine is left. It
// may be called more than once.
func (m *Manager[T]) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ch := range m.channels {
		for s := range ch.subscribers {
			s.fail(window.ErrClosed)
			s.sub.end()
		}
	}
	clear(m.channels)
}

// subscribe adds a subscriber to a channel. It does not wait for the confirmation.
func (m *Manager[T]) subscribe(sub *Subscription, name string) (*subscriber[T], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, window.ErrClosed
	}
	if m.cause != nil {
		return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, m.cause)
	}
	ch := m.channels[name]
	if ch == nil {
		ch = &channel[T]{name: name, subscribers: make(map[*subscriber[T]]struct{})}
		m.channels[name] = ch
	}
	s := &subscriber[T]{manager: m, sub: sub, channel: ch, result: make(chan error, 1)}
	ch.subscribers[s], ch.list = struct{}{}, nil
	if ch.subscribed {
		s.confirm()
		return s, nil
	}
	m.markChanged(ch)
	if !m.running {
		m.running = true
		m.wg.Go(m.run)
	}
	return s, nil
}

// markChanged makes the goroutine check ch. The caller holds mu.
func (m *Manager[T]) markChanged(ch *channel[T]) {
	if !ch.changed {
		ch.changed = true
		m.changed = append(m.changed, ch)
	}
	select {
	case m.wakeup <- struct{}{}:
	default:
	}
}

// deliver hands an EVENT to its subscribers. The connection calls it for one EVENT at a time,
// in the order of arrival.
//
// The messages are pushed without mu, so that many subscribers do not delay others. They
// still follow the gap that recipients has sent: the next one is due only after this
// connection has ended, and then deliver is not running.
func (m *Manager[T]) deliver(e codec.Event[T]) {
	m.mu.Lock()
	named, own := m.recipients(e.Channel)
	m.mu.Unlock()
	n := len(named) + len(own)
	if n == 0 {
		return
	}
	d := delivery{shared: n > 1}
	d.Server, d.Payload = m.o.Server, bytes.Clone(e.Payload)
	if len(named) > 0 {
		d.Channel = named[0].channel.name
	} else {
		d.Channel = string(e.Channel)
	}
	for _, s := range named {
		s.sub.push(d)
	}
	for _, s := range own {
		s.sub.push(d)
	}
}

// recipients returns the subscribers of the channel with this name and, if the name is the
// id of the connection, those of Own. Each of them has received its gap when recipients
// returns. The caller holds mu.
func (m *Manager[T]) recipients(name []byte) (named, own []*subscriber[T]) {
	if string(name) != Own {
		named = m.prepare(m.channels[string(name)])
	}
	if ch := m.channels[Own]; ch != nil && m.conn != nil && string(name) == m.id.String() {
		own = m.prepare(ch)
	}
	return named, own
}

// prepare prepares ch for a message: it sends the gap that is due, and returns the
// subscribers. The slice stays valid when the caller no longer holds mu. If ch is nil, there
// are no subscribers.
func (m *Manager[T]) prepare(ch *channel[T]) []*subscriber[T] {
	if ch == nil {
		return nil
	}
	m.sendGap(ch)
	if ch.list == nil {
		ch.list = make([]*subscriber[T], 0, len(ch.subscribers))
		for s := range ch.subscribers {
			ch.list = append(ch.list, s)
		}
	}
	return ch.list
}

// sendGap sends a gap to the confirmed subscribers of ch, if one is due. The caller holds
// mu.
func (m *Manager[T]) sendGap(ch *channel[T]) {
	if !ch.gap {
		return
	}
	ch.gap = false
	gap := Message{Server: m.o.Server, Channel: ch.name, Gap: true}
	if ch.name == Own {
		gap.Channel = m.id.String()
	}
	for s := range ch.subscribers {
		if s.phase == confirmed {
			s.sub.pushGap(gap)
		}
	}
}

// confirm notes that the server delivers the messages of ch. The caller holds mu.
func (m *Manager[T]) confirm(ch *channel[T]) {
	ch.subscribed = true
	m.sendGap(ch)
	for s := range ch.subscribers {
		s.confirm()
	}
}
