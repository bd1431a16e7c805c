package rediswindow

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/throttr-go/throttr/internal/breaker"
	"github.com/throttr-go/throttr/internal/deadline"
	"github.com/throttr-go/throttr/window"
)

// The bounds of calls that have requests of their own, beside that of [WithMaxQueued]. In a cluster,
// maxCalls is that of each range of slots: a node that does not respond holds up the calls of its own
// ranges, and the number of ranges bounds what is in flight.
const (
	maxCalls   = 256 // in flight
	slotRanges = 64
)

// gate bounds the requests in flight. Those whose callers have given up count until Redis or the client
// has answered them.
type gate struct {
	maxQueued int64
	queued    atomic.Int64
	closed    atomic.Bool // no request may be sent any more

	mu    sync.Mutex            // guards calls
	calls map[int]chan struct{} // of each range, holds an element for each request in flight
}

func newGate(maxQueued int) *gate {
	return &gate{maxQueued: int64(maxQueued), calls: map[int]chan struct{}{}}
}

// enter waits until a request may be sent. First come, first served. The caller receives from the channel
// when it has been answered. A caller whose ctx ends is not admitted.
func (g *gate) enter(ctx context.Context, slots int) (chan struct{}, error) {
	g.mu.Lock()
	calls := g.calls[slots]
	if calls == nil {
		calls = make(chan struct{}, maxCalls)
		g.calls[slots] = calls
	}
	g.mu.Unlock()
	select {
	case calls <- struct{}{}:
		return calls, nil
	default:
	}
	defer g.queued.Add(-1)
	if g.queued.Add(1) > g.maxQueued {
		return nil, window.ErrOverloaded
	}
	select {
	case calls <- struct{}{}:
		if ctx.Err() == nil {
			return calls, nil
		}
		<-calls
	case <-ctx.Done():
	}
	return nil, fmt.Errorf("%w; it was not sent", ctx.Err())
}

// circuitParts is how many circuit breakers a backend has on a cluster: each is that of a range of slots,
// which are mostly those of one node.
const circuitParts = 16

func init() {
	breaker.AddParts(func(b window.Backend) (int, func(key string) int) {
		if b, ok := b.(*Backend); ok {
			return circuitParts, b.circuitPart
		}
		return 0, nil
	})
}

// circuitPart returns the part of a key, which is 0 if there is no cluster.
func (b *Backend) circuitPart(key string) int {
	if cluster, err := b.client.Cluster(); err != nil || !cluster {
		return 0
	}
	return int(slotOf(hashTag(key))) * circuitParts / slots
}

// cluster reports whether the client is one of a cluster. The error says that nothing can be sent.
func (b *Backend) cluster() (bool, error) {
	if b.gate.closed.Load() {
		return false, window.ErrClosed
	}
	return b.client.Cluster()
}

// rangeOf returns the range of slots of the name of a hash in a cluster.
func rangeOf(name string) int {
	_, tag, _ := strings.Cut(name, "{")
	tag, _, _ = strings.Cut(tag, "}")
	return int(slotOf(tag)) * slotRanges / slots
}

// do returns what call returns, or the error of ctx if ctx ends first. The call then continues, and
// its result is dropped. It is not made if ctx ends before the gate admits it. The call accesses the hash
// with the given name.
//
// A call whose ctx can end runs in a goroutine of its own, without that ctx. Clients honor a ctx
// only in part. For example, rueidis (v1.0.79):
//
//   - ignores ctx while the call waits for a connection that another call dials, and while the
//     queue of the connection is full;
//   - fails all other calls that wait for a connection if ctx ends during its dialing;
//   - ignores cancellation if ctx has a deadline and the connection is otherwise idle, and closes
//     the connection at the deadline.
//
// And go-redis ignores ctx once a command is on its way, unless ContextTimeoutEnabled is set.
//
// In BenchmarkContext of redisbackend the goroutine costs about 3 µs of CPU time per call.
func do[R any](ctx context.Context, b *Backend, name string, call func(context.Context) (R, error)) (r R, err error) {
	if err := ctx.Err(); err != nil {
		return r, err
	}
	cluster, err := b.cluster()
	if err != nil {
		return r, err
	}
	slots := 0
	if cluster {
		slots = rangeOf(name)
	}
	calls, err := b.gate.enter(ctx, slots)
	if err != nil {
		return r, err
	}
	if deadline.Endless(ctx) {
		defer func() { <-calls }()
		return call(ctx)
	}
	type result struct {
		r   R
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := call(context.WithoutCancel(ctx))
		<-calls
		done <- result{r, err}
	}()
	caller, bound := deadline.Parts(ctx)
	select {
	case d := <-done:
		return d.r, d.err
	case <-caller.Done():
	case <-bound.Done():
	}
	return r, ctx.Err()
}
