package pool

import (
	"context"
	"errors"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/dial"
)

// MaxStartPause bounds the pauses between attempts to make the very first connection to a
// server, so that a program that was started first counts on the server within a second.
const MaxStartPause = 500 * time.Millisecond

// errNotYet says that the first attempt to connect is still under way.
var errNotYet = errors.New("no connection yet")

// Start has the pool connect in the background, again and again until there is a connection.
// Until then, the circuit is open, so that no call waits. The returned channel is closed at the
// end of the first attempt. Start is called instead of the first Connect, at most once.
func (p *Pool[T]) Start() (first <-chan struct{}) {
	done := make(chan struct{})
	p.shared.mu.Lock()
	defer p.shared.mu.Unlock()
	if p.shared.closed {
		close(done)
		return done
	}
	p.breaker.open(errNotYet)
	p.background.Go(func() {
		err := p.shared.connect()
		p.breaker.set(err)
		close(done)
		if err != nil {
			p.breaker.retryStart(p.ctx, p.shared.connect)
		}
	})
	return done
}

// retryStart is retry with shorter pauses, unless the server's value size is not the client's:
// such a server has to be replaced, and every attempt costs it an INSERT (H7).
func (b *breaker) retryStart(ctx context.Context, attempt func() error) {
	pauses := backoff.New(b.minBackoff, min(b.maxBackoff, MaxStartPause))
	for pauses.Wait(ctx) == nil {
		err := attempt()
		b.set(err)
		if err == nil {
			return
		}
		if errors.Is(err, dial.ErrValueSizeMismatch) {
			b.retry(ctx, attempt)
			return
		}
	}
}

// Err returns the reason why calls fail at once: the last attempt to connect has failed, and no
// other has succeeded. It returns nil if there is a connection, or if a call would make one.
func (p *Pool[T]) Err() error {
	p.breaker.mu.Lock()
	defer p.breaker.mu.Unlock()
	return p.breaker.cause
}
