package throttr

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/throttr-go/throttr/codec"
)

// hub is the subscriptions of one server. While there are any, one goroutine has a
// connection of theirs made, tells the server what changes, and makes another one
// when it is lost (hub_session.go). The reader of that connection hands out the EVENTs.
type hub[T codec.Value] struct {
	pool   *pool[T] // for its server and settings; its connections are not used
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	wake   chan struct{} // one element where dirty has grown

	mu      sync.Mutex
	closed  bool
	running bool  // there is a goroutine to serve them
	cause   error // why the last try to connect failed
	topics  map[string]*topic[T]
	dirty   []*topic[T] // to be looked at by the goroutine
	conn    *conn[T]    // nil while there is none, or its id is not known
	id      codec.ConnID
}

// topic is a channel that somebody here is, was or wants to be subscribed to. Many
// seats have one SUBSCRIBE between them (H10). The mutex of its hub guards it.
type topic[T codec.Value] struct {
	name  string
	seats map[*seat[T]]struct{}
	list  []*seat[T] // seats, if not nil; never written to
	live  bool       // the server delivers
	sent  bool       // it has been asked to, at least once
	dirty bool       // in the hub's list
	gap   bool       // its confirmed seats have yet to be told that the connection was lost
}

// seat is a subscription's place at a topic. The mutex of its hub guards it.
type seat[T codec.Value] struct {
	hub       *hub[T]
	sub       *Subscription
	topic     *topic[T]
	ready     chan error // one element, once it is confirmed or can't be
	settled   bool
	confirmed bool
	losses    int // connections lost while it waited
}

func newHub[T codec.Value](p *pool[T]) *hub[T] {
	h := &hub[T]{pool: p, wake: make(chan struct{}, 1), topics: make(map[string]*topic[T])}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// close ends all subscriptions, and returns when nothing of the hub is left.
func (h *hub[T]) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.tasks.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		for s := range t.seats {
			s.settle(ErrClosed)
			s.sub.end()
		}
	}
	clear(h.topics)
}

// connected reports whether there is a connection for subscriptions.
func (h *hub[T]) connected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conn != nil
}

// refused describes a subscription that was not made.
func (h *hub[T]) refused(sent bool, err error) error {
	return &RequestError{Server: h.pool.server, Op: codec.OpSubscribe, Sent: sent, Err: err}
}

// join gives a subscription a seat, which waits to be confirmed.
func (h *hub[T]) join(sub *Subscription, channel string) (*seat[T], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	if h.cause != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, h.cause)
	}
	t := h.topics[channel]
	if t == nil {
		t = &topic[T]{name: channel, seats: make(map[*seat[T]]struct{})}
		h.topics[channel] = t
	}
	s := &seat[T]{hub: h, sub: sub, topic: t, ready: make(chan error, 1)}
	t.seats[s], t.list = struct{}{}, nil
	if t.live {
		s.settle(nil)
		return s, nil
	}
	h.touch(t)
	if !h.running {
		h.running = true
		h.tasks.Go(h.run)
	}
	return s, nil
}

// touch has the goroutine look at t. The mutex is held.
func (h *hub[T]) touch(t *topic[T]) {
	if !t.dirty {
		t.dirty = true
		h.dirty = append(h.dirty, t)
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// event hands out an EVENT. The reader of the connection calls it, in the order of their
// arrival.
func (h *hub[T]) event(e codec.Event[T]) {
	h.mu.Lock()
	named, own := h.listeners(e.Channel)
	h.mu.Unlock()
	n := len(named) + len(own)
	if n == 0 {
		return
	}
	d := delivery{shared: n > 1}
	d.Server, d.Payload = h.pool.server, bytes.Clone(e.Payload)
	if len(named) > 0 {
		d.Channel = named[0].topic.name
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

// listeners returns who is to have an EVENT: those who have named its channel, and where
// it is the connection's own, those of OwnChannel.
func (h *hub[T]) listeners(channel []byte) (named, own []*seat[T]) {
	if string(channel) != OwnChannel {
		named = h.attend(h.topics[string(channel)])
	}
	if t := h.topics[OwnChannel]; t != nil && h.conn != nil && string(channel) == h.id.String() {
		own = h.attend(t)
	}
	return named, own
}

// attend returns the seats of t, which is about to have a message: if they have missed
// some, they are told first.
func (h *hub[T]) attend(t *topic[T]) []*seat[T] {
	if t == nil {
		return nil
	}
	h.tellGap(t)
	if t.list == nil {
		t.list = make([]*seat[T], 0, len(t.seats))
		for s := range t.seats {
			t.list = append(t.list, s)
		}
	}
	return t.list
}

// tellGap tells those who were subscribed to t before the connection was lost.
func (h *hub[T]) tellGap(t *topic[T]) {
	if !t.gap {
		return
	}
	t.gap = false
	m := Message{Server: h.pool.server, Channel: t.name, Gap: true}
	if t.name == OwnChannel {
		m.Channel = h.id.String()
	}
	for s := range t.seats {
		if s.confirmed {
			s.sub.pushGap(m)
		}
	}
}

// settle tells the subscriber that the seat is confirmed, or why it can't be. The hub's
// mutex is held.
func (s *seat[T]) settle(err error) {
	if s.settled {
		return
	}
	s.settled, s.confirmed = true, err == nil
	s.ready <- err
}

// vacate takes the seat away. The hub's mutex is held.
func (s *seat[T]) vacate() {
	t := s.topic
	if _, ok := t.seats[s]; !ok {
		return
	}
	delete(t.seats, s)
	t.list = nil
	if len(t.seats) == 0 {
		s.hub.touch(t)
	}
}

// refuse takes away a seat that can't be confirmed. The hub's mutex is held.
func (s *seat[T]) refuse(err error) {
	s.vacate()
	s.settle(err)
}

func (s *seat[T]) wait(ctx context.Context) error {
	select {
	case err := <-s.ready:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wasSent reports whether the server may have been asked.
func (s *seat[T]) wasSent() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.topic.sent
}

func (s *seat[T]) leave() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.vacate()
}

func (s *seat[T]) name() string { return s.hub.pool.server }

func (s *seat[T]) connID() (codec.ConnID, bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.hub.id, s.hub.conn != nil
}
