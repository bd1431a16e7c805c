// Package deadline bounds many calls by few timers: all calls that begin within a sixteenth of the bound
// share them.
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
	current atomic.Pointer[period] // nil if the next call begins another one
}

// shards is how many channels end the calls of a period: each receive locks one, which other calls would wait for.
const shards = 8

// period is the context of calls that begin in a sixteenth of a bound.
type period struct {
	context.Context
	cancel context.CancelFunc
	ended  [shards]chan struct{} // are closed at its end
}

// New returns the bound d, of at most a hundred years: calls may take up to d, and at least fifteen
// sixteenths of it.
func New(d time.Duration) *Bound { return &Bound{d: min(d, 100*365*24*time.Hour)} }

// Duration returns the duration that b was made with.
func (b *Bound) Duration() time.Duration { return b.d }

// Context returns a context that ends with ctx, or at the bound of a call that begins now. The caller calls
// Release, or Recycle, when the call has ended.
func (b *Bound) Context(ctx context.Context) *Context {
	p := b.current.Load()           // it is replaced by a timer: to read the clock takes longer than all else here
	if p == nil || p.Err() != nil { // the process may have stood still
		p = b.begin(p)
	}
	c := contexts.Get().(*Context)
	c.parent, c.period = ctx, p
	return c
}

// begin begins a period after another one, which may be nil.
func (b *Bound) begin(old *period) *period {
	p := &period{}
	p.Context, p.cancel = context.WithTimeout(context.Background(), b.d)
	for i := range p.ended {
		p.ended[i] = make(chan struct{})
	}
	context.AfterFunc(p, func() {
		for _, ended := range p.ended {
			close(ended)
		}
	})
	if !b.current.CompareAndSwap(old, p) {
		if other := b.current.Load(); other != nil && other != old {
			p.cancel()
			return other
		}
		return p
	}
	time.AfterFunc(b.d/16, func() { b.current.CompareAndSwap(p, nil) })
	return p
}

// Context is the context of a bounded call.
type Context struct {
	parent context.Context
	period *period
	merged atomic.Pointer[merged] // nil until somebody waits for its end, and always if only its period ends it
	waited atomic.Bool            // somebody has waited for its end, and may have derived contexts from it
	shard  uint32                 // of the channels of periods
}

// contexts are those that were recycled.
var (
	contexts = sync.Pool{New: func() any { return &Context{shard: made.Add(1) % shards} }}
	made     atomic.Uint32
)

// merged is a context of package context that ends with a Context.
type merged struct {
	context.Context
	cancel   context.CancelFunc
	stop     func() bool // the period does not end it any more
	released atomic.Bool
}

// Split returns the two contexts that can end a call: its caller's, and that of its bound, which may never end.
func Split(ctx context.Context) (caller, bound context.Context) {
	if c, ok := ctx.(*Context); ok {
		return c.parent, c.period.Context
	}
	return ctx, context.Background()
}

// Ends returns the two channels one of which is closed when a call has to end, so that a select needs no third one. Either may
// be nil.
func Ends(ctx context.Context) (caller, bound <-chan struct{}) {
	if c, ok := ctx.(*Context); ok {
		return c.parent.Done(), c.period.ended[c.shard]
	}
	return ctx.Done(), nil
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
	if err := c.period.Err(); err != nil {
		return err
	}
	if m := c.merged.Load(); m != nil && m.released.Load() {
		return context.Canceled
	}
	return nil
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

// whole returns a context of package context that ends with c.
func (c *Context) whole() context.Context {
	c.waited.Store(true)
	if c.parent.Done() == nil {
		return c.period.Context
	}
	if m := c.merged.Load(); m != nil {
		return m
	}
	m := &merged{}
	m.Context, m.cancel = context.WithCancel(c.parent)
	m.stop = context.AfterFunc(c.period, m.cancel)
	if !c.merged.CompareAndSwap(nil, m) {
		m.end()
		return c.merged.Load()
	}
	return m
}

// Unkept is the view of a backend, as package inside describes, that keeps neither the context of a call when that has
// returned nor one of [context.WithValue] or [context.WithoutCancel] of it. It may keep the contexts of [Split], and those
// that end with the call, as package net does.
type Unkept struct{}

// Recycle is Release for a context that nobody has kept, as [Unkept] says: it may be that of another call. One whose end
// somebody has waited for, such as the contexts that end with it, is not used again.
func (c *Context) Recycle() {
	if c.waited.Load() {
		c.Release()
		return
	}
	c.parent, c.period = nil, nil
	contexts.Put(c)
}

// Release ends the context, and frees what it holds.
func (c *Context) Release() {
	if m := c.merged.Load(); m != nil {
		m.released.Store(true)
		m.end()
	}
}

func (m *merged) end() {
	m.stop()
	m.cancel()
}
