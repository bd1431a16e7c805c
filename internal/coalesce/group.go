package coalesce

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Group is the coalescers of one backend. They have the same settings and end together.
type Group struct {
	maxQueued int       // of hits and operations, for each coalescer
	pool      sync.Pool // of *pending

	ctx    context.Context // ends with the group
	cancel context.CancelFunc

	// mu orders register and Stop: no goroutine is added after stopped is set. Stop holds it
	// for writing, register for reading. Check reads stopped without it.
	mu         sync.RWMutex
	stopped    atomic.Bool
	goroutines sync.WaitGroup
	finishing  chan struct{} // has an element for each FinishCall whose goroutine has not ended
}

const (
	// finishTime bounds how long what a call has begun goes on after the call.
	finishTime = 5 * time.Second
	// maxFinishing bounds how much of that there is.
	maxFinishing = 1024
)

// NewGroup returns a group without coalescers, each of which queues at most maxQueued hits and operations. Close
// it after use.
func NewGroup(maxQueued int) *Group {
	g := &Group{maxQueued: maxQueued, finishing: make(chan struct{}, maxFinishing)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.pool.New = func() any { return &pending{done: make(chan struct{}, 1)} }
	return g
}

// Context returns a context that ends with the group.
func (g *Group) Context() context.Context { return g.ctx }

// Check returns the error of a call that must not do anything: ctx's error if ctx has ended,
// and [window.ErrClosed] if the group has been stopped. Otherwise it returns nil.
func (g *Group) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.stopped.Load() {
		return window.ErrClosed
	}
	return nil
}

// Stop makes further hits and operations fail with [window.ErrClosed]. Those that are queued are
// still served, unless they wait for the request of a caller: they fail after that request.
func (g *Group) Stop() {
	g.mu.Lock()
	g.stopped.Store(true)
	g.mu.Unlock()
}

// Cancel ends the group's context. What is queued or under way fails with [window.ErrClosed],
// except for requests with the ctx of a caller, which go on.
func (g *Group) Cancel() { g.cancel() }

// Close calls Stop and Cancel, and waits until all goroutines of the group have ended.
func (g *Group) Close() {
	g.Stop()
	g.Cancel()
	g.goroutines.Wait()
}

// Go runs f in a goroutine that Close waits for. It returns false, and does not run f, if the
// group has been stopped.
func (g *Group) Go(f func()) bool {
	if !g.register() {
		return false
	}
	go func() {
		defer g.goroutines.Done()
		f()
	}()
	return true
}

// FinishCall runs f, which gives back what a call has taken, and returns when it has returned or when the
// call's ctx ends. F then goes on for up to finishTime. If too much goes on already, or if the
// group has been stopped, f has the call's ctx instead: what it can't do by then is not done.
func (g *Group) FinishCall(ctx context.Context, f func(ctx context.Context)) {
	select {
	case g.finishing <- struct{}{}:
	default:
		f(ctx)
		return
	}
	done := make(chan struct{})
	if !g.Go(func() {
		defer func() { <-g.finishing }()
		defer close(done)
		g.limited(f)
	}) {
		<-g.finishing
		f(ctx)
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// limited runs f with a ctx that ends with the group, and after finishTime.
func (g *Group) limited(f func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(g.ctx, finishTime)
	defer cancel()
	f(ctx)
}

// register makes Close wait for a goroutine, which must call goroutines.Done when it ends.
// It returns false if the group has been stopped.
func (g *Group) register() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.stopped.Load() {
		return false
	}
	g.goroutines.Add(1)
	return true
}

// newPending returns a pending hit to fill in.
func (g *Group) newPending() *pending { return g.pool.Get().(*pending) }

// recycle returns the result of p, which is finished and was not canceled, and keeps p for
// another hit.
func (g *Group) recycle(p *pending) (w window.Window, sent bool, err error) {
	w = p.result
	sent = p.sent
	err = p.err
	p.operation = nil
	p.err = nil
	p.attempts = 0
	p.begun = false
	p.waiting = false
	p.finished = false
	g.pool.Put(p)
	return w, sent, err
}
