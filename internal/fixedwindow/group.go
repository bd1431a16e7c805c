package fixedwindow

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/throttr-go/throttr/window"
)

// group is the goroutines of a backend.
type group struct {
	ctx    context.Context // ends with the group
	cancel context.CancelFunc

	// mu orders start and stop: no goroutine is added after stopped is set. stop holds it for writing, start for
	// reading. check reads stopped without it.
	mu         sync.RWMutex
	stopped    atomic.Bool
	goroutines sync.WaitGroup
}

// check returns the error of a call that must not do anything: ctx's error if ctx has ended, and
// [window.ErrClosed] if the group has been stopped. Otherwise it returns nil.
func (g *group) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.stopped.Load() {
		return window.ErrClosed
	}
	return nil
}

// start runs f in a goroutine that close waits for. It returns false, and does not run f, if the group has been
// stopped.
func (g *group) start(f func()) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.stopped.Load() {
		return false
	}
	g.goroutines.Go(f)
	return true
}

// stop makes further hits and operations fail with [window.ErrClosed]. Those that are queued are still served,
// unless they wait for the request of a caller: they fail after that request.
func (g *group) stop() {
	g.mu.Lock()
	g.stopped.Store(true)
	g.mu.Unlock()
}

// close ends the context of the group, which has been stopped, and waits until all goroutines have ended. What is
// queued or under way fails with [window.ErrClosed], except for requests with the ctx of a caller, which go on.
func (g *group) close() {
	g.cancel()
	g.goroutines.Wait()
}
