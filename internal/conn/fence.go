package conn

import (
	"fmt"

	"github.com/throttr-go/throttr/codec"
)

// Responses carry no id. If one is lost or comes twice, each that follows is taken for
// another's, and where they are all statuses nothing looks wrong. A fence shows it: a WHOAMI
// among the requests, whose answer is known from the connection's first one.

// fenceDue reports whether a fence is to go before the next request. The mutex is held.
func (c *Conn[T]) fenceDue() bool {
	every := c.o.CanaryEvery
	return every > 0 && c.o.OnEvent == nil && (c.sinceFence >= every || c.round == 0) &&
		c.inFlight < c.o.MaxInFlight && c.queue.Len() > 0
}

// fence returns a call for which nobody waits.
func (c *Conn[T]) fence() *Call[T] {
	cl := c.o.Calls.Get()
	Add(cl, codec.WhoAmI{})
	cl.fence = true
	cl.state.Store(callAbandoned)
	c.load.add(1, 1)
	c.sinceFence = 0
	return cl
}

// decodeFence compares the answer to a fence with that to the connection's first.
func (c *Conn[T]) decodeFence(src []byte) (n int, err error) {
	m, n, err := codec.DecodeWhoAmIResponse(src)
	if err != nil {
		return 0, err
	}
	if !c.identified {
		c.id, c.identified = m.ID, true
	}
	if m.ID != c.id {
		return 0, fmt.Errorf("a WHOAMI is answered as another's: answers were lost or came twice")
	}
	return n, nil
}
