package pubsub

import (
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
)

// maxChanges is the largest number of requests that are outstanding at a time. A server
// keeps 1024 responses for a connection, EVENTs included, and drops the rest (H4): most of
// that room is left to EVENTs.
const maxChanges = 64

// upToDate notes that the server is up to date, and reports whether there are no channels,
// so that the connection is not needed.
func (m *Manager[T]) upToDate() (unused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cause = nil
	return len(m.channels) == 0
}

// nextChanges returns channels to SUBSCRIBE to and channels to UNSUBSCRIBE from, as many as
// may be outstanding. It makes the changes that need no request.
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
			delete(m.channels, ch.name)
		}
	}
	m.changed = append(m.changed[:0], m.changed[n:]...)
	return subscribe, unsubscribe
}

// implicit reports whether the server has subscribed the connection to ch by itself (H8).
// After a SUBSCRIBE, each message would come twice (H10). The caller holds mu.
func (m *Manager[T]) implicit(ch *channel[T]) bool {
	return ch.name == All || ch.name == Own || ch.name == m.id.String()
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
	responses, err := m.roundTrip(m.ctx, c, requests...)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, ch := range subscribe {
		if responses[i].OK {
			m.confirm(ch)
		} else if ch.refused() {
			err = ErrRefused
		}
	}
	for _, ch := range unsubscribe {
		if !ch.changed { // no subscriber has come meanwhile
			delete(m.channels, ch.name)
		}
	}
	return err
}

// refused fails the subscribers of ch that wait. It reports whether others are left. They
// were confirmed on an earlier connection, so the server must be asked again. The caller
// holds Manager.mu.
func (ch *channel[T]) refused() (retry bool) {
	for s := range ch.subscribers {
		if s.phase == confirmed {
			retry = true
		} else {
			s.fail(ErrRefused)
		}
	}
	return retry
}
