package pubsub

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/window"
)

// maxChanges is the largest number of requests that are outstanding at a time. A server
// keeps 1024 responses for a connection, EVENTs included, and drops the rest (H4): most of
// that room is left to EVENTs.
const maxChanges = 64

// healthKey is the key that a health check asks for. No record has it.
const healthKey = "throttr:ping"

// run is the goroutine of a manager with subscribers. Its states:
//
//   - connecting: connect dials and asks for the connection's id. On failure, the waiting
//     subscribers fail and the next state is pausing. On success, it is serving.
//   - serving: serve sends the changes, 64 at a time, and checks the connection now and
//     then. If the connection is lost, the next state is pausing. If no channel is left, or
//     the manager is closed, the connection is closed and run looks whether it can return.
//   - pausing: pause waits for the backoff to pass, or for the last subscriber to leave.
//     Then run looks whether it can return; if not, the next state is connecting.
func (m *Manager[T]) run() {
	b := backoff.New(m.o.MinBackoff, m.o.MaxBackoff)
	for m.keepRunning() {
		restored, err := m.useConnection()
		if err == nil {
			continue
		}
		if restored {
			b.Reset()
		}
		m.pause(b.Next())
	}
}

// keepRunning reports whether there are subscribers. If not, the goroutine must return:
// subscribe starts another one. There is no connection when it is called.
func (m *Manager[T]) keepRunning() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = m.changed[:0]
	for name, ch := range m.channels {
		ch.changed = false
		if len(ch.subscribers) == 0 {
			delete(m.channels, name)
		}
	}
	if m.closed || len(m.channels) == 0 {
		m.running, m.cause = false, nil
		return false
	}
	return true
}

// pause waits for d to pass. It returns early if there are no subscribers.
func (m *Manager[T]) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for m.hasSubscribers() {
		select {
		case <-t.C:
			return
		case <-m.ctx.Done():
			return
		case <-m.wakeup:
		}
	}
}

// hasSubscribers reports whether any channel has a subscriber.
func (m *Manager[T]) hasSubscribers() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ch := range m.channels {
		if len(ch.subscribers) > 0 {
			return true
		}
	}
	return false
}

// useConnection makes a connection and uses it to its end. The error says why there is
// none, or why it was lost; it is nil if the connection is no longer needed. Restored
// reports whether all channels were subscribed at some time.
func (m *Manager[T]) useConnection() (restored bool, err error) {
	c, err := m.connect()
	if err != nil {
		m.connectFailed(err)
		return false, err
	}
	restored, err = m.serve(c)
	c.Close(window.ErrClosed) // when it returns, no more EVENTs are delivered
	m.disconnected(err)
	return restored, err
}

// connect makes a connection and asks for its id.
func (m *Manager[T]) connect() (*conn.Conn[T], error) {
	nc, early, err := m.o.Open(m.ctx)
	if err != nil {
		m.o.OnFailure()
		return nil, err
	}
	c := conn.New(nc, early, conn.Options[T]{
		MaxInFlight:  m.o.MaxInFlight,
		MaxQueued:    m.o.MaxQueued,
		StallTimeout: m.o.StallTimeout,
		Calls:        m.o.Calls,
		Counters:     m.o.Counters,
		OnEvent:      m.deliver,
		OnEnd:        m.connectionEnded,
	})
	replies, err := m.roundTrip(c, codec.WhoAmI{})
	var me codec.WhoAmIResponse
	if err == nil {
		me, _, err = codec.DecodeWhoAmIResponse(replies[0].Value)
	}
	if err != nil {
		c.Close(window.ErrClosed)
		return nil, fmt.Errorf("%w to %s: %w", dial.ErrConnect, m.o.Server, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conn, m.id = c, me.ID
	for _, ch := range m.channels {
		m.markChanged(ch)
	}
	return c, nil
}

// connectionEnded counts a connection that ended for another reason than that it was not
// needed.
func (m *Manager[T]) connectionEnded(_ *conn.Conn[T], err error) {
	if !errors.Is(err, window.ErrClosed) {
		m.o.OnFailure()
	}
}

// connectFailed fails the subscribers that wait for the server's first answer. The others
// stay, and receive a gap when there is a connection again.
func (m *Manager[T]) connectFailed(err error) {
	if m.ctx.Err() != nil {
		return // Close fails them all, with another error
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cause = err
	for _, ch := range m.channels {
		for s := range ch.subscribers {
			s.fail(err)
		}
	}
}

// disconnected notes that the connection has ended. If it was lost, err says why.
func (m *Manager[T]) disconnected(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conn = nil
	for _, ch := range m.channels {
		ch.subscribed = false
		for s := range ch.subscribers {
			if s.state == confirmed {
				ch.gap = true
			} else if err != nil {
				if s.losses++; s.losses > m.o.MaxRetries {
					s.fail(err)
				}
			}
		}
	}
}

// serve keeps the server up to date until there are no subscribers, the manager is closed,
// or the connection is lost. Only the last is an error. Restored reports whether all
// channels were subscribed at some time.
func (m *Manager[T]) serve(c *conn.Conn[T]) (restored bool, err error) {
	tick := time.NewTicker(m.o.HealthInterval)
	defer tick.Stop()
	for {
		subscribe, unsubscribe := m.nextChanges()
		if len(subscribe)+len(unsubscribe) > 0 {
			if err := m.apply(c, subscribe, unsubscribe); err != nil {
				return restored, err
			}
			continue
		}
		if m.upToDate() {
			return true, nil
		}
		restored = true
		select {
		case <-m.wakeup:
		case <-tick.C:
			// EVENTs are no sign that the server still answers requests.
			if _, err := m.roundTrip(c, codec.Query{Key: []byte(healthKey)}); err != nil {
				return true, err
			}
		case <-c.Done():
			return true, c.Err()
		case <-m.ctx.Done():
			return true, nil
		}
	}
}

// upToDate notes that the server is up to date, and reports whether there are no channels,
// so that the connection is not needed.
func (m *Manager[T]) upToDate() (unused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cause = nil
	return len(m.channels) == 0
}

// nextChanges returns channels to SUBSCRIBE to and channels to UNSUBSCRIBE from, as many as
// may be outstanding. It completes the changes that need no request.
func (m *Manager[T]) nextChanges() (subscribe, unsubscribe []*channel[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := min(maxChanges, m.o.MaxInFlight)
	n := 0
	for ; n < len(m.changed) && len(subscribe)+len(unsubscribe) < most; n++ {
		ch := m.changed[n]
		ch.changed = false
		wanted := len(ch.subscribers) > 0
		switch {
		case wanted && !ch.subscribed && m.implicit(ch):
			m.confirm(ch)
		case wanted && !ch.subscribed:
			ch.requested = true
			subscribe = append(subscribe, ch)
		case !wanted && ch.subscribed && !m.implicit(ch):
			ch.subscribed = false
			unsubscribe = append(unsubscribe, ch)
		case !wanted:
			m.forget(ch)
		}
	}
	m.changed = append(m.changed[:0], m.changed[n:]...)
	return subscribe, unsubscribe
}

// implicit reports whether the server has subscribed the connection to ch by itself (H8).
// With a SUBSCRIBE, each message would come twice (H10).
func (m *Manager[T]) implicit(ch *channel[T]) bool {
	return ch.name == All || ch.name == Own || ch.name == m.id.String()
}

// forget removes a channel that has no subscribers. The caller holds mu.
func (m *Manager[T]) forget(ch *channel[T]) {
	if m.channels[ch.name] == ch {
		delete(m.channels, ch.name)
	}
}

// apply sends changes to the server and waits for the responses.
func (m *Manager[T]) apply(c *conn.Conn[T], subscribe, unsubscribe []*channel[T]) error {
	requests := make([]codec.Request, 0, len(subscribe)+len(unsubscribe))
	for _, ch := range subscribe {
		requests = append(requests, codec.Subscribe{Channel: []byte(ch.name)})
	}
	for _, ch := range unsubscribe {
		requests = append(requests, codec.Unsubscribe{Channel: []byte(ch.name)})
	}
	replies, err := m.roundTrip(c, requests...)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, ch := range subscribe {
		if replies[i].OK {
			m.confirm(ch)
		} else if ch.refused() {
			err = ErrRefused
		}
	}
	for _, ch := range unsubscribe {
		if len(ch.subscribers) == 0 && !ch.changed {
			m.forget(ch)
		}
	}
	return err
}

// refused fails the subscribers of ch that wait. It reports whether there are others: they
// had been confirmed on an earlier connection, so that the server must be asked again. The
// caller holds the manager's mutex.
func (ch *channel[T]) refused() (retry bool) {
	for s := range ch.subscribers {
		if s.state == confirmed {
			retry = true
		} else {
			s.fail(ErrRefused)
		}
	}
	return retry
}

// roundTrip sends requests in one write and waits for the responses. Only the goroutine of
// the manager calls it, so that no other requests are outstanding.
//
// A server that has too many EVENTs to send can drop a response (H4). The stall watchdog of
// the connection does not notice it while EVENTs keep coming, so roundTrip has a timeout of
// its own. It ends the connection before a later response could be taken for the one that
// was dropped. The watchdog's timeout is shorter, as its error is more precise.
func (m *Manager[T]) roundTrip(c *conn.Conn[T], requests ...codec.Request) ([]conn.Reply[T], error) {
	cl := m.o.Calls.Get()
	for _, r := range requests {
		if err := conn.Add(cl, r); err != nil {
			m.o.Calls.Put(cl)
			return nil, err
		}
	}
	if err := c.Enqueue(cl, false); err != nil {
		m.o.Calls.Put(cl)
		<-c.Done()
		return nil, c.Err()
	}
	timeout := m.o.StallTimeout
	timeout += min(timeout/2, math.MaxInt64-timeout)
	ctx, cancel := context.WithTimeout(m.ctx, timeout)
	defer cancel()
	owned, _, err := cl.Wait(ctx)
	if !owned {
		reason := window.ErrClosed
		if m.ctx.Err() == nil {
			reason = fmt.Errorf("%w: no answer to a subscription for %v", conn.ErrStalled, timeout)
		}
		c.Close(reason)
		return nil, c.Err()
	}
	replies := slices.Clone(cl.Replies)
	m.o.Calls.Put(cl)
	return replies, err
}
