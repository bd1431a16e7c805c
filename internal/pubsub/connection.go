package pubsub

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

// maxChanges is the largest number of requests that are outstanding at a time. A server
// keeps 1024 responses for a connection, EVENTs included, and drops the rest (H4): most of
// that room is left to EVENTs.
const maxChanges = 64

// run is the goroutine of a manager that has channels. It makes connections, and uses each to its end,
// until there are no channels. After a failure it waits for the backoff.
func (m *Manager) run() {
	b := outage.NewBackoff(m.o.MinBackoff, m.o.MaxBackoff)
	var next time.Time // the next attempt
	for m.keepRunning() {
		if time.Now().Before(next) {
			outage.SleepUntil(m.ctx, next, m.wakeup)
		} else if err := m.useConnection(b); err != nil {
			next = time.Now().Add(b.Next())
		}
	}
}

// keepRunning removes the channels without subscribers, and reports whether others are
// left. If not, the goroutine must return: subscribe will start another one. It is called
// while there is no connection, so that nobody has to unsubscribe.
func (m *Manager) keepRunning() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.channels, func(_ string, ch *channel) bool { return len(ch.subscribers) == 0 })
	m.running = len(m.channels) > 0
	if !m.running {
		m.cause = nil
	}
	return m.running
}

// useConnection makes a connection and uses it to its end. The error says why there is
// none, or why it was lost; it is nil if the connection is no longer needed.
func (m *Manager) useConnection(b *outage.Backoff) error {
	c, err := m.o.Open(m.ctx, m.deliver)
	if err != nil {
		m.connectFailed(err)
		return err
	}
	m.mu.Lock()
	m.conn = c
	m.mu.Unlock()
	err = m.serve(c, b)
	if err == nil {
		m.unsubscribe(c)
	}
	if errors.Is(err, conn.ErrGone) {
		err = c.Err()
	}
	c.Close(window.ErrClosed) // when it returns, no more EVENTs are delivered
	m.disconnected(err)
	return err
}

// connectFailed fails the subscribers that have never been confirmed. The others stay, and
// receive a gap when there is a connection again, even if messages have come while this one was being made.
func (m *Manager) connectFailed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cause = err
	for _, ch := range m.channels {
		ch.failWaiting(err)
		ch.interrupt()
	}
}

// disconnected notes that the connection has ended. If it was lost, err says why.
func (m *Manager) disconnected(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conn = nil
	for _, ch := range m.channels {
		ch.subscribed = false
		ch.interrupt()
		for _, s := range ch.subscribers {
			if s.confirmed || err == nil {
				continue
			}
			if s.losses++; s.losses > m.o.MaxRetries {
				s.fail(err)
			}
		}
	}
}

// serve keeps the server up to date until there are no channels, or the connection is lost. Only the
// latter is an error. The backoff starts over once the server is up to date.
func (m *Manager) serve(c *conn.Conn, b *outage.Backoff) error {
	tick := time.NewTicker(m.o.HealthInterval)
	defer tick.Stop()
	for {
		changes, unused := m.nextChanges()
		if len(changes) > 0 {
			if err := m.apply(c, changes); err != nil {
				return err
			}
			continue
		}
		if unused {
			return nil
		}
		b.Reset()
		select {
		case <-m.wakeup:
		case <-tick.C:
			// The stall watchdog sees nothing while no request is outstanding.
			if err := c.Ping(m.ctx); err != nil {
				return err
			}
		case <-c.Done():
			return c.Err()
		}
	}
}

// change is a channel to SUBSCRIBE to or to UNSUBSCRIBE from.
type change struct {
	channel   *channel
	subscribe bool
}

// nextChanges compares the channels with what the server has, and returns as many changes as may be
// outstanding. It makes those that need no request. If there are none, the server is up to date, and
// unused says that there are no channels.
func (m *Manager) nextChanges() (changes []change, unused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, ch := range m.channels {
		wanted := len(ch.subscribers) > 0
		switch {
		case wanted && ch.subscribed:
		case wanted && m.implicit(name):
			m.confirm(ch)
		case !wanted && (!ch.subscribed || m.implicit(name)):
			delete(m.channels, name)
		case len(changes) < min(maxChanges, m.o.MaxInFlight):
			changes = append(changes, change{ch, wanted})
			ch.subscribed = false
			ch.requested = ch.requested || wanted
		}
	}
	if len(changes) > 0 {
		return changes, false
	}
	m.cause = nil
	return nil, len(m.channels) == 0
}

// implicit reports whether the server has subscribed the connection to a channel by itself (H8).
// After a SUBSCRIBE, each message would come twice (H10). The caller holds mu, and there is a connection.
func (m *Manager) implicit(name string) bool {
	return name == All || name == m.conn.ID().String()
}

// apply sends changes to the server and waits for the responses. A subscriber that was confirmed on an
// earlier connection can't be refused: the server must be asked again, on another connection.
func (m *Manager) apply(c *conn.Conn, changes []change) error {
	responses, err := c.RoundTrip(m.ctx, func(cl *conn.Call) {
		for _, x := range changes {
			name := []byte(x.channel.name)
			if x.subscribe {
				conn.Add(cl, codec.Subscribe{Channel: name})
			} else {
				conn.Add(cl, codec.Unsubscribe{Channel: name})
			}
		}
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, x := range changes {
		switch {
		case !x.subscribe:
			x.channel.interrupt() // somebody may have subscribed again meanwhile
		case responses[i].OK:
			m.confirm(x.channel)
		default:
			x.channel.failWaiting(ErrRefused)
			if len(x.channel.subscribers) > 0 {
				err = ErrRefused
			}
		}
	}
	return err
}

// unsubscribe unsubscribes a connection that is about to be closed from the channels to which the server
// has subscribed it: EVENTs that a server can't send keep their memory for good (H16).
func (m *Manager) unsubscribe(c *conn.Conn) {
	ctx, cancel := context.WithTimeout(m.ctx, conn.CloseGrace)
	defer cancel()
	c.RoundTrip(ctx, func(cl *conn.Call) {
		conn.Add(cl, codec.Unsubscribe{Channel: []byte(All)})
		conn.Add(cl, codec.Unsubscribe{Channel: []byte(c.ID().String())})
	})
}
