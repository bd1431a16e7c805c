package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

// Puddle limits the number of shared connections, and makes and destroys them. It hands a resource to
// one user at a time. Here that user is the pool, which holds each connection from the moment
// it is made, shares it among all callers, and destroys it when it is lost, too old or idle.
//
// Invariants:
//   - At most one attempt to make a shared connection is under way.
//   - live has at most MaxConns connections, and one more while it replaces one that is too old.
//     Puddle may hold more: those that were retired and still have requests in flight.
//   - While Err is not nil, there is no shared connection, and a goroutine tries to make one again and again.
//   - A connection in live has not ended, or is about to be discarded: by its OnEnd, or by who
//     notices first.
//   - Once the pool is closed, live stays empty.

const (
	// growthThreshold is the number of calls per connection that make another connection useful.
	// While a server executes the requests of one connection, the client writes those of the
	// next. But the more connections there are, the fewer requests leave in one write.
	growthThreshold = 48
	// mismatchPauses is how many of the longest pauses are added to one if the server's value size is not the
	// client's: such a server has to be replaced, and every attempt costs it an INSERT (H7).
	mismatchPauses = 9
)

// errNotYet says that the first attempt to connect is still under way.
var errNotYet = fmt.Errorf("%w: no response yet", dial.ErrConnect)

// attempt is an attempt to make a shared connection. All callers that need one share it.
type attempt struct {
	done chan struct{} // closed when err is set
	err  error
}

// Connect waits until there is a connection, and makes one if there is none.
func (p *Pool) Connect(ctx context.Context) error {
	_, err := p.acquire(ctx, true)
	return err
}

// Start has the pool connect in the background, again and again until there is a connection.
// Until then Err is not nil: no call waits, and no other attempt is made. The returned channel is closed at the
// end of the first attempt. Start is called instead of the first Connect, at most once, and not after Close.
func (p *Pool) Start() (first <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = errNotYet
	return p.beginAttempt().done
}

// acquire returns the connection with the least load. If there is none, acquire waits for one to be made. If grows is
// true and all of them are busy, acquire has another one made and does not wait for it.
func (p *Pool) acquire(ctx context.Context, grows bool) (*conn.Conn, error) {
	for {
		c, useful := p.pick()
		if grows && useful {
			p.grow(false)
		}
		if c != nil {
			return c, nil
		}
		if err := p.awaitConn(ctx); err != nil {
			return nil, err
		}
	}
}

// pick returns the connection with the least load, nil if there is none, and whether another
// connection would be useful.
func (p *Pool) pick() (best *conn.Conn, grow bool) {
	live := *p.live.Load()
	var least conn.Load
	for _, r := range live {
		c := r.Value()
		if load := c.Load(); best == nil || load.Requests < least.Requests {
			best, least = c, load
		}
	}
	return best, best != nil && p.shouldGrow(len(live), least)
}

// shouldGrow reports whether another connection beside the n existing ones would be useful:
// there may be another one, and even the least loaded has many calls to do or is about to
// reach its limit of requests in flight.
func (p *Pool) shouldGrow(n int, least conn.Load) bool {
	return n < p.o.MaxConns &&
		(least.Calls >= n*growthThreshold || least.Requests >= (p.o.MaxInFlight+1)/2)
}

// grow has another connection made, and does not wait for it: one beside others if that is still useful, or one that
// replaces another.
func (p *Pool) grow(replaces bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, useful := p.pick()
	if (useful || replaces) && !p.isClosed() && p.away == nil && !time.Now().Before(p.noGrowth) {
		p.beginAttempt()
	}
}

// awaitConn waits for an attempt to make a connection, which it begins if none is under way. It returns nil if there
// may be a connection.
func (p *Pool) awaitConn(ctx context.Context) error {
	a, err := p.join()
	if a == nil {
		return err
	}
	defer p.waiting.Add(-1)
	select {
	case <-a.done:
		err = a.err
	case <-ctx.Done():
	}
	return cmp.Or(err, ctx.Err()) // both may have happened
}

// join returns the attempt that a caller must wait for, which is counted as waiting then. It returns none if there is a
// connection by now, or if the caller must fail.
func (p *Pool) join() (*attempt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isClosed():
		return nil, window.ErrClosed
	case len(*p.live.Load()) > 0:
		return nil, nil
	case p.away != nil:
		return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, p.away)
	}
	a := p.beginAttempt()
	if err := p.enterQueue(); err != nil {
		return nil, err
	}
	return a, nil
}

// beginAttempt begins an attempt, unless one is under way. It does not depend on the context of the caller that needs
// it. The caller holds mu.
func (p *Pool) beginAttempt() *attempt {
	if p.attempt == nil {
		p.attempt = &attempt{done: make(chan struct{})}
		p.background.Go(p.makeShared)
	}
	return p.attempt
}

// makeShared is a goroutine that makes an attempt, and further ones with pauses while there is no connection.
func (p *Pool) makeShared() {
	pauses := outage.NewBackoff(p.o.MinBackoff, p.o.MaxBackoff)
	for !p.tryShared() {
		err := p.Err()
		if pauses.Wait(p.ctx, err) != nil {
			return
		}
		if errors.Is(err, dial.ErrValueSizeMismatch) && outage.Sleep(p.ctx, mismatchPauses*p.o.MaxBackoff) != nil {
			return
		}
	}
}

// tryShared makes an attempt. It returns false if another one must follow, because there is no connection.
//
// Acquire always makes a connection, as the pool holds all that there are. Close ends it by way of p.ctx: puddle's
// Close hangs if it is called while a constructor that TryAcquire has started runs.
func (p *Pool) tryShared() bool {
	r, err := p.puddle.Acquire(p.ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		err = p.admit(r)
	}
	switch {
	case p.isClosed():
		return true
	case err == nil:
		p.away = nil
	case len(*p.live.Load()) > 0: // the others are as they were
		p.noGrowth = time.Now().Add(p.o.MaxBackoff)
		err = nil
	default:
		p.away = err
	}
	p.endAttempt(err)
	return err == nil
}

// endAttempt ends the attempt that is under way, if any. The caller holds mu.
func (p *Pool) endAttempt(err error) {
	if a := p.attempt; a != nil {
		a.err = err
		close(a.done)
		p.attempt = nil
	}
}

// admit adds a connection that was just made to live, or returns why that is not possible. The caller holds mu.
func (p *Pool) admit(r *puddle.Resource[*conn.Conn]) error {
	err := r.Value().Err() // it may have ended before it was in live
	if p.isClosed() {
		err = window.ErrClosed
	}
	if err != nil {
		r.Destroy()
		return &dial.ConnectError{Server: p.o.Server, Err: err}
	}
	live := append(slices.Clip(*p.live.Load()), r)
	p.live.Store(&live)
	p.firstConn.Do(func() { close(p.connected) })
	return nil
}

// discard removes c from dedicated or live. It does nothing if c was discarded before.
func (p *Pool) discard(c *conn.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.dedicated, c)
	live := slices.Clone(*p.live.Load())
	i := slices.IndexFunc(live, func(r *puddle.Resource[*conn.Conn]) bool { return r.Value() == c })
	if i < 0 {
		return
	}
	live[i].Destroy() // in the background
	live = slices.Delete(live, i, i+1)
	p.live.Store(&live)
}

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
