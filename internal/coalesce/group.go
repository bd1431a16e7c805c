package coalesce

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Options are the settings of a Group.
type Options struct {
	Now       func() time.Time // the clock of the windows
	MaxQueued int              // hits and operations that may be queued, for each coalescer
	Single    bool             // hits do not share requests
}

// Group is what the coalescers of one backend share: their settings and their end.
type Group struct {
	options Options
	pool    sync.Pool // of *pending

	ctx    context.Context // ends with the group
	cancel context.CancelFunc

	mu      sync.RWMutex // held for reading while a goroutine is registered, for writing by Stop
	stopped atomic.Bool
	running sync.WaitGroup
}

// NewGroup returns a group, which has to be closed.
func NewGroup(o Options) *Group {
	g := &Group{options: o}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.pool.New = func() any { return &pending{done: make(chan struct{}, 1)} }
	return g
}

// Context returns a context that ends with the group.
func (g *Group) Context() context.Context { return g.ctx }

// Check returns why a call with ctx must not do anything: ctx's error if ctx has ended,
// [window.ErrClosed] if the group has been stopped, or nil.
func (g *Group) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.stopped.Load() {
		return window.ErrClosed
	}
	return nil
}

// Stop makes further hits and operations fail with window.ErrClosed. Those that are queued
// because a request is under way are still served until Close.
func (g *Group) Stop() {
	g.mu.Lock()
	g.stopped.Store(true)
	g.mu.Unlock()
}

// Cancel ends the group's context: what is queued or under way fails with window.ErrClosed.
// The request of a lone caller, which has the caller's ctx, goes on.
func (g *Group) Cancel() { g.cancel() }

// Close stops the group, cancels what is queued or under way, and returns when none of the
// group's goroutines is left.
func (g *Group) Close() {
	g.Stop()
	g.Cancel()
	g.running.Wait()
}

// Go runs f in a goroutine of the group and returns true, or false if the group has been
// stopped.
func (g *Group) Go(f func()) bool {
	if !g.register() {
		return false
	}
	go func() {
		defer g.running.Done()
		f()
	}()
	return true
}

// register makes Close wait for a goroutine until that has called running.Done. It returns
// false if the group has been stopped.
func (g *Group) register() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.stopped.Load() {
		return false
	}
	g.running.Add(1)
	return true
}

// pending returns an empty pending hit.
func (g *Group) pending() *pending { return g.pool.Get().(*pending) }

// recycle returns the answer of p, which is done, and keeps p for another hit.
func (g *Group) recycle(p *pending) (r Result, sent bool, err error) {
	r, sent, err = p.result, p.sent, p.err
	p.operation, p.err = nil, nil
	p.begun, p.waits, p.finished = false, false, false // it was not canceled
	g.pool.Put(p)
	return r, sent, err
}
