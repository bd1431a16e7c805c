package outage

import (
	"errors"
	"sync/atomic"

	"github.com/throttr-go/throttr/window"
)

// Calls counts the calls of a backend, for its Stats.
type Calls struct {
	calls, errors atomic.Uint64
	away          atomic.Pointer[error] // of the last call; nil while the store responds
}

// Count counts a call.
func (c *Calls) Count(err error) {
	c.calls.Add(1)
	switch {
	case err == nil:
		if c.away.Load() != nil {
			c.away.Store(nil)
		}
		return
	case IsMistake(err), errors.Is(err, window.ErrClosed):
		return // no failure of the store
	case errors.Is(err, window.ErrUnavailable):
		away := err // a copy, so that err need not be on the heap
		c.away.Store(&away)
	}
	c.errors.Add(1)
}

// Stats returns what was counted of a store with a name.
func (c *Calls) Stats(name string) window.StoreStats {
	s := window.StoreStats{Name: name, Calls: c.calls.Load(), Errors: c.errors.Load()}
	if err := c.away.Load(); err != nil {
		s.Err = *err
	}
	return s
}
