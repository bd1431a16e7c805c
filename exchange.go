package throttr

import (
	"context"
	"errors"
	"fmt"
)

// An exchange is a call on its way to a server: sent once, or more than once where
// that is safe, and waited for.

// exchange sends a call and waits for its answers. If it returns false, the call must
// not be touched any more.
func (p *pool[T]) exchange(ctx context.Context, cl *call[T]) (mine bool, err error) {
	if err := p.send(ctx, cl, true); err != nil {
		return true, err
	}
	return p.await(ctx, cl)
}

// send queues a call on a connection of p. On an error nothing was sent, and the
// call is its caller's. Waits says that he does nothing else before he calls await.
func (p *pool[T]) send(ctx context.Context, cl *call[T], waits bool) error {
	if err := ctx.Err(); err != nil {
		return p.failed(cl, false, err)
	}
	for {
		var borrowed bool
		c, err := p.get(ctx)
		if err == nil {
			borrowed, err = c.push(cl, waits)
		}
		switch {
		case borrowed:
			cl.borrowed = c
			return nil
		case err == nil:
			return nil
		case errors.Is(err, errConnGone):
			p.discard(c)
		default:
			return p.failed(cl, false, err)
		}
	}
}

// await waits for a call that send has queued, and sends it again if it failed and
// that is safe. It returns false where the call has been abandoned: then it must not
// be touched any more. The error is a *RequestError.
func (p *pool[T]) await(ctx context.Context, cl *call[T]) (mine bool, err error) {
	op := cl.op // an abandoned call is not to be looked at
	for try := 0; ; try++ {
		if c := cl.borrowed; c != nil {
			cl.borrowed = nil
			c.hear(ctx, cl)
		}
		select {
		case <-cl.done:
		case <-ctx.Done():
			if sent, ok := cl.abandon(); ok {
				return false, &RequestError{Server: p.server, Op: op, Sent: sent, Err: ctx.Err()}
			}
			<-cl.done
		}
		if cl.err == nil {
			return true, nil
		}
		sent, reason := cl.sent, cl.err
		if try >= p.cfg.MaxRetries || sent && !cl.readOnly() || errors.Is(reason, ErrClosed) || errors.Is(reason, errStale) {
			return true, p.failed(cl, sent, reason)
		}
		p.counts.retries.Add(1)
		cl.rewind()
		if again := p.send(ctx, cl, true); again != nil {
			return true, p.failed(cl, sent, fmt.Errorf("%w, after %w", errors.Unwrap(again), reason))
		}
	}
}

// failed describes why cl has no answer.
func (p *pool[T]) failed(cl *call[T], sent bool, err error) error {
	return &RequestError{Server: p.server, Op: cl.op, Sent: sent, Err: err}
}
