// Package batch lets calls that are made at one time share requests to a store, and adds nothing to a call that is
// made alone. It knows nothing of the store.
//
//   - While only a few requests are in flight, a caller sends its call itself, on its own goroutine and with its own
//     ctx. That must end soon, or never: a caller that is canceled does not wait for a store that hangs.
//   - Otherwise, the call is queued. When a request is back, the next one takes all that is queued. So requests become
//     larger as the store becomes slower.
//   - After a request of several calls, their callers are about to call again: they are queued, and share the next one.
//   - Calls of a request that are equal are one entry of it.
//   - A request from the queue has a ctx of its own. A call whose ctx ends returns, and does not affect the others.
package batch

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// MaxInFlight is how many requests are in flight at most, unless the options say it. With fewer, the store and its
// callers take turns, and both go idle; with more, requests of a few calls take the time that larger ones save.
const MaxInFlight = 4

// brief is the longest time until the deadline of a caller that sends its call itself. The end of its ctx may be
// noticed at the deadline only: that is up to the client of the store.
const brief = time.Second

// Options are those of a [Batcher].
type Options[K comparable, T any] struct {
	// Send makes a request of entries, and stores the results in the values of their calls. An entry is the first of
	// equal calls: Next leads to the others.
	Send func(ctx context.Context, entries []*Call[T])
	// Key returns what equal calls have in common, and false for a call that is equal to no other.
	Key func(*T) (K, bool)
	// Size returns the size of an entry. Those of a request add up to MaxSize at most, unless it has only one.
	Size    func(*T) int
	MaxSize int
	// MaxInFlight is how many requests are in flight at most. 0: [MaxInFlight]
	MaxInFlight int
	// Late says that Send may go on when its ctx has ended. Then only callers whose ctx never ends send their calls.
	Late bool
	// MaxQueued is how many calls can be queued. Further ones fail with [window.ErrOverloaded].
	MaxQueued int
}

// Call is a call. It can be used again when Do has returned nil.
type Call[T any] struct {
	Value T
	Next  *Call[T] // the next one of equal calls
	Rank  int      // how many equal calls are before it
	Times int      // how many equal calls there are, of the first of them

	tail   *Call[T] // the last one of equal calls, of the first of them
	caller context.Context
	self   [1]*Call[T]
	done   chan struct{}
	sent   bool // guarded by the mutex of the Batcher, as is gone
	gone   bool // the caller has returned
}

// Batcher sends calls to one store, or to one node of it. It is safe for concurrent use.
type Batcher[K comparable, T any] struct {
	options Options[K, T]

	mu       sync.Mutex // guards what follows
	queue    []*Call[T] // if it has any, requests in flight or about to be sent take them
	gone     int        // calls in the queue whose callers have returned
	inFlight int        // requests, also those that goroutines are about to send
	last     int        // how many calls the last request had
}

// New returns a Batcher.
func New[K comparable, T any](o Options[K, T]) *Batcher[K, T] {
	o.MaxInFlight = cmp.Or(o.MaxInFlight, MaxInFlight)
	return &Batcher[K, T]{options: o}
}

// alone makes a call an entry of its own.
func (c *Call[T]) alone() {
	c.Rank = 0
	c.Times = 1
	c.Next = nil
}

// Do has a call sent, and returns when its result is there. If ctx ends first, it returns the error of ctx, and whether
// the call was sent. The call then still belongs to the Batcher.
func (b *Batcher[K, T]) Do(ctx context.Context, c *Call[T]) (sent bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	direct := b.sendsItself(ctx)
	b.mu.Lock()
	if direct && b.last <= 1 && b.inFlight < b.options.MaxInFlight && len(b.queue) == 0 {
		b.inFlight++
		b.last = 1
		b.mu.Unlock()
		defer b.end()
		c.self[0] = c
		c.alone()
		b.options.Send(ctx, c.self[:])
		return true, nil
	}
	if len(b.queue)-b.gone >= b.options.MaxQueued {
		b.mu.Unlock()
		return false, window.ErrOverloaded
	}
	if c.done == nil {
		c.done = make(chan struct{}, 1)
	}
	c.caller, c.sent = ctx, false
	b.queue = append(b.queue, c)
	if len(b.queue) == 1 {
		b.next()
	}
	b.mu.Unlock()
	return b.wait(ctx, c)
}

// sendsItself reports whether a caller with this ctx may send its call itself: if the store hangs, it must not wait
// for long after it has been canceled.
func (b *Batcher[K, T]) sendsItself(ctx context.Context) bool {
	if at, ok := ctx.Deadline(); ok {
		return !b.options.Late && time.Until(at) <= brief
	}
	return ctx.Done() == nil
}

// wait waits for the result of a call that is queued.
func (b *Batcher[K, T]) wait(ctx context.Context, c *Call[T]) (sent bool, err error) {
	select {
	case <-c.done:
		return true, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.gone = true
	if !c.sent {
		b.gone++
		if b.gone > len(b.queue)/2 {
			b.queue = slices.DeleteFunc(b.queue, func(c *Call[T]) bool { return c.gone })
			b.gone = 0
		}
	}
	return c.sent, ctx.Err()
}

// end notes that a request is back.
func (b *Batcher[K, T]) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight--
	b.next()
}

// next has what is queued sent, unless enough requests are in flight. The caller holds mu.
func (b *Batcher[K, T]) next() {
	if len(b.queue) > 0 && b.inFlight < b.options.MaxInFlight {
		b.inFlight++
		go b.serve()
	}
}

// serve sends what is queued, one request after the other: a goroutine for each of them would grow its stack each time.
func (b *Batcher[K, T]) serve() {
	defer b.end()
	for {
		runtime.Gosched() // goroutines that are ready to run may be about to call
		b.mu.Lock()
		entries, calls := b.take()
		if len(calls) == 0 {
			b.mu.Unlock()
			return
		}
		b.last = len(calls)
		b.next() // if there is more than a request can have
		b.mu.Unlock()
		b.options.Send(context.WithoutCancel(calls[0].caller), entries)
		for _, c := range calls {
			c.caller = nil
			c.done <- struct{}{}
		}
	}
}

// take removes calls from the queue, and returns them and their entries. The caller holds mu.
func (b *Batcher[K, T]) take() (entries, calls []*Call[T]) {
	calls = make([]*Call[T], 0, len(b.queue))
	equal := make(map[K]*Call[T], len(b.queue)) // the first of equal calls
	taken, size := 0, 0
	for _, c := range b.queue {
		if c.gone {
			taken++
			b.gone--
			continue
		}
		c.alone()
		c.tail = c
		key, may := b.options.Key(&c.Value)
		if first := equal[key]; may && first != nil {
			c.Rank = first.Times
			first.Times++
			first.tail.Next = c
			first.tail = c
		} else {
			more := b.options.Size(&c.Value)
			if size > 0 && size+more > b.options.MaxSize {
				break
			}
			size += more
			entries = append(entries, c)
			if may {
				equal[key] = c
			}
		}
		c.sent = true
		calls = append(calls, c)
		taken++
	}
	b.queue = append(b.queue[:0:0], b.queue[taken:]...)
	return entries, calls
}
