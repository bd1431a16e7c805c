package pool

import (
	"context"
	"errors"
	"fmt"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

// Do sends a call and waits until it is done. If nobody else uses the connection, the caller reads its responses
// itself. A call that fails is sent again, MaxRetries times at most, if it was certainly not executed or only reads,
// and is not stale. Sent reports whether a failed call may have been executed. If done is false, ctx has ended and
// the call is abandoned: the caller must not use it any more.
func (p *Pool) Do(ctx context.Context, cl *conn.Call) (done, sent bool, err error) {
	p.AddParking(cl) // a call that creates records also keeps a parked server parked
	if err := p.send(ctx, cl); err != nil {
		return true, false, err
	}
	for try := 0; ; try++ {
		done, sentNow, err := cl.Wait(ctx)
		sent = sent || sentNow
		if err == nil {
			p.RemoveParking(cl)
		}
		if !done || err == nil {
			return done, sent, err
		}
		if try >= p.o.MaxRetries || sentNow && !cl.ReadOnly() || final(err) {
			return true, sent, err
		}
		p.retries.Add(1)
		cl.Rewind()
		if again := p.send(ctx, cl); again != nil {
			return true, sent, fmt.Errorf("%w, after %w", again, err)
		}
	}
}

// send queues a call on a connection. The caller does nothing before it waits.
func (p *Pool) send(ctx context.Context, cl *conn.Call) error {
	return p.onShared(ctx, true, func(c *conn.Conn) error { return c.Enqueue(cl) })
}

// onShared calls f with a shared connection, see acquire, and with another one if f returns conn.ErrGone: the connection
// is ending, and has not sent what f queued last.
func (p *Pool) onShared(ctx context.Context, grows bool, f func(c *conn.Conn) error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c, err := p.acquire(ctx, grows)
		if err != nil {
			return err
		}
		if err := f(c); !errors.Is(err, conn.ErrGone) {
			return err
		}
		p.discard(c) // it is ending: acquire must not return it again
	}
}

// final reports whether sending a call again is of no use, whatever the call.
func final(err error) bool {
	return errors.Is(err, window.ErrClosed) || errors.Is(err, conn.ErrStale)
}
