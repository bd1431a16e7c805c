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

// healthKey is the key that a health check asks for. No record has it.
const healthKey = "throttr:ping"

// run is the goroutine of a manager that has channels. It repeats these steps until there
// are no subscribers, or the manager is closed:
//
//   - connect dials and asks for the connection's id. If it fails, the waiting subscribers
//     fail, and serve is skipped.
//   - serve sends changes, 64 at a time, and checks an idle connection from time to time.
//     It returns if the connection is lost or not needed.
//   - pause waits for the backoff, if the connection could not be made or was lost. It
//     returns early if the last subscriber leaves.
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

// keepRunning removes the channels without subscribers, and reports whether others are
// left. If not, the goroutine must return: subscribe will start another one. It is called
// while there is no connection, so that nobody has to unsubscribe.
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
	if err == nil || m.ctx.Err() != nil {
		m.unsubscribe(c)
	}
	c.Close(window.ErrClosed) // when it returns, no more EVENTs are delivered
	m.disconnected(err)
	return restored, err
}

// connect makes a connection and asks for its id.
func (m *Manager[T]) connect() (*conn.Conn[T], error) {
	nc, early, err := m.o.Open(m.ctx)
	if err != nil {
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
	responses, err := m.roundTrip(m.ctx, c, codec.WhoAmI{})
	var me codec.WhoAmIResponse
	if err == nil {
		me, _, err = codec.DecodeWhoAmIResponse(responses[0].Value)
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

// connectFailed fails the subscribers that have never been confirmed. The others stay, and
// receive a gap when there is a connection again.
func (m *Manager[T]) connectFailed(err error) {
	if m.ctx.Err() != nil {
		return // Close fails them, with ErrClosed
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
			if s.phase == confirmed {
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
			// The stall watchdog sees nothing while no request is outstanding.
			if _, err := m.roundTrip(m.ctx, c, codec.Query{Key: []byte(healthKey)}); err != nil {
				return true, err
			}
		case <-c.Done():
			return true, c.Err()
		case <-m.ctx.Done():
			return true, nil
		}
	}
}

// unsubscribeTime bounds the UNSUBSCRIBEs of a connection that is not needed any more.
const unsubscribeTime = 250 * time.Millisecond

// unsubscribe unsubscribes a connection that is about to be closed from all channels: EVENTs that a
// server can't send keep their memory for good (H16).
func (m *Manager[T]) unsubscribe(c *conn.Conn[T]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), unsubscribeTime)
	defer cancel()
	for names := range slices.Chunk(m.subscribed(), min(maxChanges, m.o.MaxInFlight)) {
		requests := make([]codec.Request, len(names))
		for i, name := range names {
			requests[i] = codec.Unsubscribe{Channel: []byte(name)}
		}
		if _, err := m.roundTrip(ctx, c, requests...); err != nil {
			return
		}
	}
}

// subscribed returns the channels that the connection is subscribed to.
func (m *Manager[T]) subscribed() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := []string{All, m.id.String()}
	for _, ch := range m.channels {
		if ch.subscribed && !m.implicit(ch) {
			names = append(names, ch.name)
		}
	}
	return names
}

// roundTrip sends requests in one write and waits for the responses. Only the goroutine of
// the manager calls it, so that no other requests are outstanding.
//
// A server that has too many EVENTs to send can drop a response (H4). The stall watchdog of
// the connection does not notice it while EVENTs keep coming, so roundTrip has a timeout of
// its own. It ends the connection before a later response could be taken for the one that
// was dropped. The watchdog's timeout is shorter, as its error is more precise.
func (m *Manager[T]) roundTrip(parent context.Context, c *conn.Conn[T], requests ...codec.Request) ([]conn.Response[T], error) {
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
	ctx, cancel := context.WithTimeout(parent, timeout)
	defer cancel()
	done, _, err := cl.Wait(ctx)
	if !done {
		if parent.Err() != nil {
			return nil, window.ErrClosed // the response is due, and is read by c
		}
		c.Fail(fmt.Errorf("%w: no response on the connection of subscriptions for %v", conn.ErrStalled, timeout))
		<-c.Done()
		return nil, c.Err()
	}
	responses := slices.Clone(cl.Responses)
	m.o.Calls.Put(cl)
	return responses, err
}
