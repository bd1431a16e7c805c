package pool

import (
	"context"
	"errors"
	"fmt"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

// Do sends a call and waits until it is done. It is Send and Wait in one step, which is
// quicker if nobody else uses the connection: the caller then reads its responses itself.
func (p *Pool) Do(ctx context.Context, cl *conn.Call) (done, sent bool, err error) {
	p.AddParking(cl) // a call that creates records also keeps a parked server parked
	if err := p.send(ctx, cl, true); err != nil {
		return true, false, err
	}
	return p.Wait(ctx, cl)
}

// Send queues a call on a connection. If it returns nil, the caller must call Wait next for
// this call. If it returns an error, nothing was sent and the call is still its caller's.
func (p *Pool) Send(ctx context.Context, cl *conn.Call) error {
	p.AddParking(cl)
	return p.send(ctx, cl, false)
}

// send queues a call on a connection. Waits says that the caller does nothing before it waits.
func (p *Pool) send(ctx context.Context, cl *conn.Call, waits bool) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c, err := p.acquire(ctx)
		if err != nil {
			return err
		}
		if err := c.Enqueue(cl, waits); !errors.Is(err, conn.ErrGone) {
			return err
		}
		p.discard(c) // it is ending: acquire must not return it again
	}
}

// Wait waits until a call that Send has queued is done. A call that fails is sent again,
// MaxRetries times at most, if it was certainly not executed or only reads, and is not stale. Sent reports
// whether a failed call may have been executed. If done is false, ctx has ended and the call
// is abandoned: the caller must not use it any more.
func (p *Pool) Wait(ctx context.Context, cl *conn.Call) (done, sent bool, err error) {
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
		if again := p.send(ctx, cl, true); again != nil {
			return true, sent, fmt.Errorf("%w, after %w", again, err)
		}
	}
}

// final reports whether sending a call again is of no use, whatever the call.
func final(err error) bool {
	return errors.Is(err, window.ErrClosed) || errors.Is(err, conn.ErrStale)
}
