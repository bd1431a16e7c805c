package pool

import (
	"context"
	"errors"
	"fmt"

	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/window"
)

// mismatchPauses is how many of the longest pauses are added to one if the server's value size is not the
// client's: such a server has to be replaced, and every attempt costs it an INSERT (H7).
const mismatchPauses = 9

// errNotYet says that the first attempt to connect is still under way.
var errNotYet = errors.New("no connection yet")

// Start has the pool connect in the background, again and again until there is a connection.
// Until then Err is not nil: no call waits, and no other attempt is made. The returned channel is closed at the
// end of the first attempt. Start is called instead of the first Connect, at most once.
func (p *Pool[T]) Start() (first <-chan struct{}) {
	done := make(chan struct{})
	p.shared.mu.Lock()
	defer p.shared.mu.Unlock()
	if p.shared.closed {
		close(done)
		return done
	}
	p.setAway(errNotYet)
	p.background.Go(func() {
		connected := p.tryConnect()
		close(done)
		if !connected {
			p.reconnect()
		}
	})
	return done
}

// reconnect makes attempts to connect, with pauses, until one succeeds or the pool is closed.
func (p *Pool[T]) reconnect() {
	pauses := backoff.New(p.o.MinBackoff, p.o.MaxBackoff)
	for pauses.Wait(p.ctx, p.Err()) == nil {
		if errors.Is(p.Err(), dial.ErrValueSizeMismatch) && backoff.Sleep(p.ctx, mismatchPauses*p.o.MaxBackoff) != nil {
			return
		}
		if p.tryConnect() {
			return
		}
	}
}

// tryConnect makes an attempt to connect, and has Err return why it has failed.
func (p *Pool[T]) tryConnect() bool {
	err := p.shared.connect()
	p.setAway(err)
	return err == nil
}

// awaitStartUp waits until the server has been up for dial.StartUp, if it may have been restarted: there is no
// shared connection, and one was lost, or an attempt to make one has failed. A server that is parked
// has been up for as long, because it starts without a record, and clients that park it wait first.
// Otherwise the time begins with the response to the probe: an INFO would tell more, but scans all
// records of a server that was not restarted (H24).
func (p *Pool[T]) awaitStartUp(ctx context.Context, parked bool) error {
	if parked || !p.mayHaveRestarted.Load() {
		return nil
	}
	return backoff.Sleep(ctx, dial.StartUp)
}

// Err returns the reason why calls fail at once: the last attempt to connect has failed, or is Start's first, and no
// other has succeeded. It returns nil if there is a connection, or if a call would make one.
func (p *Pool[T]) Err() error {
	if cause := p.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// setAway has Err return why the server can't be reached, or nil.
func (p *Pool[T]) setAway(cause error) {
	if cause == nil {
		p.cause.Store(nil)
		return
	}
	p.cause.Store(&cause)
}

// away returns Err as the error of a call, which is not sent.
func (p *Pool[T]) away() error {
	if err := p.Err(); err != nil {
		return fmt.Errorf("%w: %w", window.ErrUnavailable, err)
	}
	return nil
}
