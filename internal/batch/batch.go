// Package batch lets calls that are made at one time share requests to a store, and adds nothing to a call that is
// made alone. It knows nothing of the store.
//
//   - A caller that finds no request in flight sends its call itself, on its own goroutine and with its own ctx. Beside
//     another request, it might wait for what that one waits for, such as a connection, whatever its ctx says.
//   - Otherwise the call is queued. Two requests are in flight; when one is back, the next takes all that is queued. So
//     requests become larger as the store becomes slower. Another one is sent earlier only if the newest in flight is older
//     than [Age], as it is over a slow network.
//   - Calls of a request that are equal are one entry of it.
//   - A request of several calls has a ctx of its own. A call whose ctx ends returns, and does not affect the others.
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

const (
	// Age is how old the newest request in flight is when another one may be sent.
	Age = 100 * time.Microsecond
	// InFlight is how many requests are in flight if none is as old as that.
	InFlight = 2
	// MaxInFlight is how many requests are in flight at most, unless the options say it.
	MaxInFlight = 8

	// brief is the longest time until the deadline of a caller that sends its call itself. The end of its ctx may be
	// noticed at the deadline only: that is up to the client of the store.
	brief = time.Second
)

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

	mu        sync.Mutex // guards what follows
	queue     []*Call[T]
	gone      int         // calls in the queue whose callers have returned
	inFlight  int         // requests
	gathering bool        // a goroutine is about to send what is queued
	last      int         // how many calls the last request had
	sent      time.Time   // when it was sent
	timer     *time.Timer // ends when that is as old as Age, if calls are queued by then
	waiting   bool        // for the timer
}

// New returns a Batcher.
func New[K comparable, T any](o Options[K, T]) *Batcher[K, T] {
	o.MaxInFlight = cmp.Or(o.MaxInFlight, MaxInFlight)
	b := &Batcher[K, T]{options: o}
	b.timer = time.AfterFunc(Age, b.aged)
	return b
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
	direct := sendsItself(ctx)
	b.mu.Lock()
	if direct && b.last <= 1 && b.inFlight == 0 && len(b.queue) == 0 && !b.gathering {
		b.begin(1)
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
	b.next()
	b.mu.Unlock()
	return b.wait(ctx, c)
}

// sendsItself reports whether a caller with this ctx may send its call itself: if the store hangs, it must not wait
// for long after it has been canceled.
func sendsItself(ctx context.Context) bool {
	if at, ok := ctx.Deadline(); ok {
		return time.Until(at) <= brief
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

// mayBegin reports whether another request may be sent. The caller holds mu.
func (b *Batcher[K, T]) mayBegin() bool {
	return b.inFlight < min(InFlight, b.options.MaxInFlight) || b.inFlight < b.options.MaxInFlight && time.Since(b.sent) >= Age
}

// begin notes that a request of so many calls is sent. The caller holds mu.
func (b *Batcher[K, T]) begin(calls int) {
	b.inFlight++
	b.last = calls
	b.sent = time.Now()
}

// end notes that a request is back.
func (b *Batcher[K, T]) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight--
	b.next()
}

// next has what is queued sent, now or when the newest request in flight is old enough. The caller holds mu.
func (b *Batcher[K, T]) next() {
	switch {
	case b.gathering || len(b.queue) == 0:
	case b.mayBegin():
		b.gathering = true
		go b.serve()
	case !b.waiting && b.inFlight < b.options.MaxInFlight:
		b.waiting = true
		b.timer.Reset(Age - time.Since(b.sent))
	}
}

// aged is called by the timer.
func (b *Batcher[K, T]) aged() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = false
	b.next()
}

// serve sends what is queued. After a request of several calls, which are about to call again, it goes on with the
// next one: a goroutine for each request would grow its stack each time. Only one goroutine gathers at a time. After
// one call, its caller may send the next one itself.
func (b *Batcher[K, T]) serve() {
	for more := true; more; {
		runtime.Gosched() // goroutines that are ready to run may be about to call
		b.mu.Lock()
		b.gathering = false
		entries, calls := b.take()
		if len(calls) == 0 {
			b.mu.Unlock()
			return
		}
		b.begin(len(calls))
		b.next()
		b.mu.Unlock()
		b.options.Send(context.WithoutCancel(calls[0].caller), entries)
		for _, c := range calls {
			c.caller = nil
			c.done <- struct{}{}
		}
		b.mu.Lock()
		b.inFlight--
		more = len(calls) > 1 && !b.gathering && b.mayBegin()
		b.gathering = b.gathering || more
		b.next()
		b.mu.Unlock()
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
