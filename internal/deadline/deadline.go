// Package deadline bounds many calls by few timers: all calls that begin within a sixteenth of the bound
// share one.
package deadline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Bound is how long calls may take. It is safe for concurrent use.
type Bound struct {
	d       time.Duration
	current atomic.Pointer[period]
}

// period is a shared timer: the context of calls without a context that can end.
type period struct {
	context.Context
	cancel context.CancelFunc
	until  time.Time // it is that of calls that begin before
}

// New returns the bound d, of at most a hundred years: calls may take up to d, and at least fifteen
// sixteenths of it.
func New(d time.Duration) *Bound { return &Bound{d: min(d, 100*365*24*time.Hour)} }

// Context returns a context that ends with ctx, or at the bound of a call that begins now. The caller calls
// Release when the call has ended.
func (b *Bound) Context(ctx context.Context) *Context {
	return &Context{parent: ctx, period: b.period(time.Now())}
}

// period returns the timer of a call that begins now.
func (b *Bound) period(now time.Time) *period {
	p := b.current.Load()
	if p != nil && now.Before(p.until) {
		return p
	}
	next := &period{until: now.Add(b.d / 16)}
	next.Context, next.cancel = context.WithDeadline(context.Background(), now.Add(b.d))
	if !b.current.CompareAndSwap(p, next) {
		next.cancel()
		return b.current.Load()
	}
	return next
}

// Context is the context of a bounded call.
type Context struct {
	parent context.Context
	period *period

	released atomic.Bool // and merged is not nil

	mu     sync.Mutex // guards what follows
	merged context.Context
	cancel context.CancelFunc // of merged
	stop   func() bool        // the period does not end merged any more
}

// Parts returns the two contexts with which a call ends, so that a select on both of their Done needs no third
// one: its caller's, and that of its bound, which may never end.
func Parts(ctx context.Context) (caller, bound context.Context) {
	if c, ok := ctx.(*Context); ok {
		return c.parent, c.period.Context
	}
	return ctx, context.Background()
}

// Endless reports whether a call never ends by its context.
func Endless(ctx context.Context) bool {
	_, bounded := ctx.(*Context)
	return !bounded && ctx.Done() == nil
}

// Exceeded reports whether the bound has ended the call, and not its caller.
func (c *Context) Exceeded() bool { return c.parent.Err() == nil && c.period.Err() != nil }

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) {
	bound, _ := c.period.Deadline()
	if at, ok := c.parent.Deadline(); ok && at.Before(bound) {
		return at, true
	}
	return bound, true
}

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} { return c.whole().Done() }

// Err implements [context.Context].
func (c *Context) Err() error {
	if err := c.parent.Err(); err != nil {
		return err
	}
	if err := c.period.Err(); err != nil || !c.released.Load() {
		return err
	}
	return context.Canceled
}

// Value implements [context.Context].
func (c *Context) Value(key any) any {
	if v := c.parent.Value(key); v != nil {
		return v
	}
	return c.period.Value(key)
}

// AfterFunc makes the contexts that package context derives from c need no goroutine.
func (c *Context) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.whole(), f) }

// whole returns a context of package context that ends with c. It is made only if somebody waits for that.
func (c *Context) whole() context.Context {
	if c.parent.Done() == nil {
		return c.period.Context
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.merged == nil {
		c.merged, c.cancel = context.WithCancel(c.parent)
		c.stop = context.AfterFunc(c.period, c.cancel)
	}
	return c.merged
}

// Release ends the context, and frees what it holds.
func (c *Context) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.merged != nil {
		c.released.Store(true)
		c.stop()
		c.cancel()
	}
}
