package conn

import (
	"context"
	"errors"
	"os"
	"time"
)

// A caller who has a connection to himself reads his answer himself: that it need not be
// handed from the reader to him saves two changes of goroutines, which take as long as a
// quick server. The reader lends its ear for that whenever a lone call has been answered,
// and takes it back when it is not borrowed for a while, or callers become more than one.
//
// Timers that are about to run out slow down every wait for the network, so that there is
// one of long duration here, and no deadline unless a caller leaves.

const (
	// earLoan is how long an ear that nobody borrows stays free. Nobody notices meanwhile
	// that the connection has been closed, but who borrows it looks.
	earLoan = 250 * time.Millisecond
	// earTrust is how long after such a look none is needed.
	earTrust = time.Millisecond
)

// ear says who reads from a connection.
type ear uint8

const (
	earReader ear = iota // the reader
	earFree              // nobody: there is nothing to wait for
	earCaller            // a caller
)

// lend lets go of the ear after a lone call, and returns whether it did.
func (c *Conn[T]) lend() bool {
	if c.direct == nil || c.o.OnEvent != nil || len(c.finished) != 1 || c.lo < c.hi {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.retiring || c.inFlight > 0 || c.queue.Len() > 0 {
		return false
	}
	c.ear = earFree
	return true
}

// standBy waits until the reader has the ear again. It returns why the connection has
// ended, nil if it has not.
func (c *Conn[T]) standBy() error {
	loan := time.NewTimer(earLoan)
	defer loan.Stop()
	for loans := uint64(0); ; {
		over := false
		select {
		case <-c.recall:
		case <-loan.C:
			over = true
			loan.Reset(earLoan)
		}
		c.mu.Lock()
		if c.ear == earFree && (c.err != nil || over && c.loans == loans) {
			c.ear = earReader
		}
		loans = c.loans
		back, err := c.ear == earReader, c.err
		c.mu.Unlock()
		if back {
			c.nc.SetReadDeadline(time.Time{})
			return err
		}
	}
}

// borrow takes the ear for a caller, if it is free and he wants it and is alone. If he is
// not, the reader takes it back. The mutex is held.
func (c *Conn[T]) borrow(wanted, alone bool) bool {
	switch {
	case c.ear != earFree:
		return false
	case !wanted || !alone:
		c.giveBack()
		return false
	}
	c.ear = earCaller
	c.loans++
	return true
}

// giveBack returns the ear to the reader. The mutex is held.
func (c *Conn[T]) giveBack() {
	c.ear = earReader
	c.callReader()
}

// callReader has the reader look who has the ear.
func (c *Conn[T]) callReader() {
	select {
	case c.recall <- struct{}{}:
	default: // it is about to
	}
}

// prick looks, before a borrower writes, whether the connection has been closed while
// nobody read.
func (c *Conn[T]) prick() error {
	now := time.Now()
	if now.Sub(c.pricked) < earTrust {
		return nil
	}
	c.pricked = now
	n, err := c.direct.read(c.room())
	if n == 0 && err == nil {
		return nil
	}
	return c.received(n, err)
}

// hear reads on behalf of a borrower until his call is done or his ctx ends, and gives the
// ear away.
func (c *Conn[T]) hear(ctx context.Context, cl *Call[T]) {
	c.watch(ctx)
	for cl.state.Load() != callDone && ctx.Err() == nil { // it may have ended before he had the ear
		if err := c.receive(); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				c.Fail(err)
			}
			break
		}
	}
	c.unwatch(ctx)
	c.mu.Lock()
	if c.err == nil && !c.retiring && c.inFlight == 0 && c.queue.Len() == 0 && c.lo == c.hi {
		c.ear = earFree
	} else {
		c.giveBack()
	}
	c.mu.Unlock()
}

// watch has reads end when ctx does, until unwatch.
func (c *Conn[T]) watch(ctx context.Context) {
	done := ctx.Done()
	if done == c.watched {
		return // since an earlier call
	}
	c.stopWatching()
	if done == nil {
		return
	}
	c.watched = done
	c.stopWatch = context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ear == earCaller { // if it is another one, he leaves the rest to the reader
			c.nc.SetReadDeadline(time.Unix(1, 0))
		}
	})
}

// unwatch stops what watch has started, unless it was the same ctx twice: who makes one call
// after the other need not start it again each time.
func (c *Conn[T]) unwatch(ctx context.Context) {
	done := ctx.Done()
	if done != c.lastWatched {
		c.stopWatching()
	}
	c.lastWatched = done
}

func (c *Conn[T]) stopWatching() {
	if c.stopWatch != nil {
		c.stopWatch()
	}
	c.watched, c.stopWatch = nil, nil
}
