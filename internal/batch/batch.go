// Package batch lets calls that are made at one time share requests to a store, and adds nothing to a call that is
// made alone. It knows nothing of the store.
//
//   - While fewer than two requests are in flight, or only a few that take long, a caller sends its call itself, on its
//     own goroutine and with its own ctx. That must end soon, or never: a caller that is canceled does not wait for a
//     store that hangs.
//   - Otherwise, the call is queued. When a request is back, the next one takes all that is queued. So requests become
//     larger as the store becomes slower. With two in flight, the store does one while this process makes the other; more
//     of them take more time of both sides than a larger one.
//   - After a request of several calls, their callers are about to call again: they are queued, and share the next one.
//   - Calls of a request that have the same key are one entry of it.
//   - A request from the queue has a ctx of its own. A call whose ctx ends returns, and does not affect the others.
package batch

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// MaxInFlight is how many requests are in flight at most, unless the options say it. With more, requests of a few calls
// take the time that larger ones save.
const MaxInFlight = 4

// together is how many requests are in flight whatever they take, unless MaxInFlight is less.
const together = 2

// brief is the longest time until the deadline of a caller that sends its call itself. The end of its ctx may be
// noticed at the deadline only: that is up to the client of the store.
const brief = time.Second

// Options are those of a [Batcher].
type Options[K comparable, T any] struct {
	// Send makes a request of entries, each of which is calls with the same key in their order, and stores the results
	// in the values of the calls.
	Send func(ctx context.Context, entries [][]*Call[T])
	// Key returns the key of a call, and false for one that is an entry alone. What shares an entry is up to the store:
	// equal calls, which are made in one step, or those of one row, which is read once.
	Key func(*T) (K, bool)
	// Size returns the size of an entry, by one of its calls. Those of a request add up to MaxSize at most, unless it
	// has only one.
	Size    func(*T) int
	MaxSize int
	// MaxInFlight is how many requests are in flight at most. 0: [MaxInFlight]
	MaxInFlight int
	// Patience is how old the last request must be before a third one may be in flight, unless requests take that long:
	// then the store is far away. It is looked at when a call is made, and when a request is back.
	Patience time.Duration
	// Punctual says that Send returns when its ctx ends. Otherwise, only callers whose ctx never ends send their calls.
	Punctual bool
	// MaxQueued is how many calls can be queued, also those whose callers have returned. Further ones fail with
	// [window.ErrOverloaded].
	MaxQueued int
}

// Call is a call. It can be used again when Do has returned nil.
type Call[T any] struct {
	Value T

	// Do sets these, so that a call that shares nothing allocates nothing.
	asEntry   [1]*Call[T]   // the call as an entry
	asRequest [1][]*Call[T] // that entry as a request

	caller context.Context
	done   chan struct{}
	sent   bool // guarded by the mutex of the Batcher, as is gone
	gone   bool // the caller has returned
}

// Batcher sends calls to one store, or to one node of it. It is safe for concurrent use.
type Batcher[K comparable, T any] struct {
	options Options[K, T]

	mu       sync.Mutex    // guards what follows
	queue    []*Call[T]    // if it has any, requests in flight or about to be sent take them
	inFlight int           // requests, also those that goroutines are about to send
	last     int           // how many calls the last request had
	sentAt   time.Time     // when that was, or its goroutine was started
	took     time.Duration // how long requests take that are back
}

// New returns a Batcher.
func New[K comparable, T any](o Options[K, T]) *Batcher[K, T] {
	o.MaxInFlight = cmp.Or(o.MaxInFlight, MaxInFlight)
	return &Batcher[K, T]{options: o}
}

// Do has a call sent, and returns when its result is there. If ctx ends first, it returns the error of ctx, and whether
// the call was sent. The call then still belongs to the Batcher.
func (b *Batcher[K, T]) Do(ctx context.Context, c *Call[T]) (sent bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	c.asEntry[0] = c
	b.mu.Lock()
	alone := b.last <= 1 // otherwise, other callers of the last request are about to call again: see the package's comment
	if alone && len(b.queue) == 0 && b.room() && b.sendsItself(ctx) {
		b.inFlight++
		sentAt := b.begin(1)
		defer b.end(sentAt)
		b.mu.Unlock()
		c.asRequest[0] = c.asEntry[:]
		b.options.Send(ctx, c.asRequest[:])
		return true, nil
	}
	if len(b.queue) >= b.options.MaxQueued {
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
func (b *Batcher[K, T]) sendsItself(ctx context.Context) bool {
	if at, ok := ctx.Deadline(); ok {
		return b.options.Punctual && time.Until(at) <= brief
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
	return c.sent, ctx.Err()
}

// room reports whether another request may be in flight. The caller holds mu.
func (b *Batcher[K, T]) room() bool {
	if b.inFlight < min(together, b.options.MaxInFlight) {
		return true
	}
	return b.inFlight < b.options.MaxInFlight && max(b.took, time.Since(b.sentAt)) >= b.options.Patience
}

// begin notes that a request of so many calls is about to be sent, and returns the time. The caller holds mu.
func (b *Batcher[K, T]) begin(calls int) time.Time {
	b.last = calls
	b.sentAt = time.Now()
	return b.sentAt
}

// end notes that a request which was sent at a time is back.
func (b *Batcher[K, T]) end(sentAt time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back(sentAt)
	b.inFlight--
	b.next()
}

// back notes how long a request has taken. One that is late for once does not make a near store a far one. The caller
// holds mu.
func (b *Batcher[K, T]) back(sentAt time.Time) {
	b.took = min(time.Since(sentAt), 2*b.took+time.Microsecond)
}

// next has what is queued sent, unless enough requests are in flight. The caller holds mu.
func (b *Batcher[K, T]) next() {
	if len(b.queue) > 0 && b.room() {
		b.inFlight++
		b.sentAt = time.Now()
		go b.serve()
	}
}

// serve sends what is queued, one request after the other: a goroutine for each of them would grow its stack each time.
func (b *Batcher[K, T]) serve() {
	for {
		runtime.Gosched() // goroutines that are ready to run may be about to call
		b.mu.Lock()
		entries, calls := b.take()
		if len(calls) == 0 {
			b.inFlight--
			b.mu.Unlock()
			return
		}
		sentAt := b.begin(len(calls))
		b.mu.Unlock()
		b.options.Send(context.WithoutCancel(calls[0].caller), entries)
		b.mu.Lock()
		b.back(sentAt)
		b.mu.Unlock()
		for _, c := range calls {
			c.caller = nil
			c.done <- struct{}{}
		}
	}
}

// take removes calls from the queue, and returns them and their entries. The caller holds mu.
func (b *Batcher[K, T]) take() (entries [][]*Call[T], calls []*Call[T]) {
	calls = make([]*Call[T], 0, min(len(b.queue), b.options.MaxSize))
	entryOf := make(map[K]int, cap(calls))
	taken, size := 0, 0
	for _, c := range b.queue {
		if c.gone {
			taken++
			continue
		}
		key, may := b.options.Key(&c.Value)
		if entry, there := entryOf[key]; may && there {
			entries[entry] = append(entries[entry], c)
		} else {
			more := b.options.Size(&c.Value)
			if size > 0 && size+more > b.options.MaxSize {
				break
			}
			size += more
			if may {
				entryOf[key] = len(entries)
			}
			entries = append(entries, c.asEntry[:])
		}
		c.sent = true
		calls = append(calls, c)
		taken++
	}
	clear(b.queue[:taken])
	b.queue = b.queue[taken:] // append moves what is left when there is no more room behind it
	if len(b.queue) == 0 {
		b.queue = nil
	}
	return entries, calls
}
