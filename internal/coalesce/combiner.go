package coalesce

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/throttr-go/throttr/internal/deadline"
	"github.com/throttr-go/throttr/internal/fifo"
	"github.com/throttr-go/throttr/window"
)

// maxYields is how often a goroutine that gathers hits lets others run, as long as hits are added.
const maxYields = 4

// CombinerOptions are the settings of a Combiner. All must be set.
type CombinerOptions[K comparable, R any] struct {
	// Add sends a request that adds to windows, and stores their results. Its sums have
	// different keys. Its ctx has the values of that of the first hit, and does not end.
	Add         func(ctx context.Context, sums []Sum[K, R]) error
	Partitions  int // the number of partitions
	MaxHits     int // the most hits that share a request
	MaxInFlight int // the most requests in flight, of each partition
	MaxQueued   int // the most hits that wait for a request, of all partitions
}

// Sum is what the hits of a request add to one window.
type Sum[K comparable, R any] struct {
	Key K
	N   uint64 // the sum of the increments, at most the largest uint64
	// Result is what Add has found.
	Result R
	// Err is set by Add if this sum has failed, and others have not.
	Err error
}

// Share is the share of a hit in a request.
type Share[R any] struct {
	Result R
	// Before is the sum of the increments of the hits on the same window that the request has
	// counted before this hit.
	Before uint64
}

// Combiner lets hits on any windows share requests, for a store that adds to many windows in one
// atomic request. It differs from a [Coalescer] in that a hit does not wait for the response to
// another one, unless MaxInFlight requests are in flight: a request carries the hits of all
// goroutines that are ready to run when it is made.
//
// A Combiner has partitions. Hits of different partitions do not share requests.
type Combiner[K comparable, R any] struct {
	options    CombinerOptions[K, R]
	partitions []atomic.Pointer[partition[K, R]] // made when they are needed
	queued     atomic.Int64                      // hits in the queues that are not canceled
	calls      sync.Pool                         // of *call
	batches    sync.Pool                         // of *batch
}

// NewCombiner returns a combiner. It needs no closing: its goroutines end with the requests.
func NewCombiner[K comparable, R any](o CombinerOptions[K, R]) *Combiner[K, R] {
	c := &Combiner[K, R]{options: o, partitions: make([]atomic.Pointer[partition[K, R]], o.Partitions)}
	c.calls.New = func() any { return &call[K, R]{done: make(chan struct{}, 1)} }
	c.batches.New = func() any { return &batch[K, R]{index: map[K]int{}} }
	return c
}

// call is a hit that was given to a combiner.
type call[K comparable, R any] struct {
	key       K
	increment uint64
	ctx       context.Context // of the caller

	begun    bool // the hit is part of a request; guarded by the mutex of the partition
	canceled bool // the caller has returned before that; guarded by the mutex of the partition

	alone [1]Sum[K, R] // of a request of its own

	// share and err are set before done receives an element.
	share Share[R]
	err   error
	done  chan struct{} // has room for an element
}

// partition is the hits that may share requests.
//
// If no goroutine gathers, either no hit is queued, or MaxInFlight requests are in flight.
type partition[K comparable, R any] struct {
	combiner *Combiner[K, R]

	// mu guards the fields below. It is not held during a request.
	mu        sync.Mutex
	queue     fifo.Queue[*call[K, R]]
	canceled  int  // elements of queue that are canceled
	gathering bool // a goroutine is about to make a request of the hits in the queue
	inFlight  int  // requests
	last      int  // the number of hits of the last request
}

// Do has a hit of a partition counted. If err is not nil, sent reports whether the hit may have been
// counted. The error is one of Add or of ctx, or [window.ErrOverloaded].
func (c *Combiner[K, R]) Do(ctx context.Context, partition int, key K, increment uint64) (s Share[R], sent bool, err error) {
	if err := ctx.Err(); err != nil {
		return s, false, err
	}
	q := c.partition(partition)
	q.mu.Lock()
	p := c.calls.Get().(*call[K, R])
	p.key, p.increment, p.ctx = key, increment, ctx
	if q.lone() {
		p.begun = true
		q.inFlight++
		q.mu.Unlock()
		if deadline.Endless(ctx) {
			q.requestAlone(p)
			return c.recycle(p)
		}
		go func() {
			q.requestAlone(p)
			p.done <- struct{}{}
		}()
		return c.wait(ctx, q, p)
	}
	if c.queued.Add(1) > int64(c.options.MaxQueued) {
		c.queued.Add(-1)
		q.mu.Unlock()
		p.ctx = nil
		c.calls.Put(p)
		return s, false, window.ErrOverloaded
	}
	q.queue.Push(p)
	switch {
	case q.gathering || q.inFlight >= c.options.MaxInFlight:
		q.mu.Unlock()
	case deadline.Endless(ctx):
		// The hit is the only one in the queue, and so part of the request.
		q.gathering = true
		q.mu.Unlock()
		q.request(p)
		return c.recycle(p)
	default:
		q.gathering = true
		q.mu.Unlock()
		go q.request(nil)
	}
	return c.wait(ctx, q, p)
}

// wait waits until a hit is finished, or until ctx ends.
func (c *Combiner[K, R]) wait(ctx context.Context, q *partition[K, R], p *call[K, R]) (s Share[R], sent bool, err error) {
	caller, bound := deadline.Parts(ctx)
	select {
	case <-p.done:
		return c.recycle(p)
	case <-caller.Done():
	case <-bound.Done():
	}
	sent = q.cancel(p)
	select {
	case <-p.done:
		return c.recycle(p)
	default:
		return s, sent, ctx.Err()
	}
}

// partition returns a partition.
func (c *Combiner[K, R]) partition(i int) *partition[K, R] {
	if q := c.partitions[i].Load(); q != nil {
		return q
	}
	c.partitions[i].CompareAndSwap(nil, &partition[K, R]{combiner: c})
	return c.partitions[i].Load()
}

// recycle returns the outcome of a call that was not canceled, and keeps the call for another hit.
func (c *Combiner[K, R]) recycle(p *call[K, R]) (s Share[R], sent bool, err error) {
	s, err = p.share, p.err
	var none call[K, R]
	none.done = p.done
	*p = none
	c.calls.Put(p)
	return s, true, err
}

// cancel removes a hit from the queue. It reports whether it is too late for that.
func (q *partition[K, R]) cancel(p *call[K, R]) (begun bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.begun {
		return true
	}
	p.canceled = true
	q.canceled++
	q.combiner.queued.Add(-1)
	q.dropCanceled()
	if q.canceled > max(keptCanceled, q.queue.Len()/2) {
		for range q.queue.Len() {
			if p := q.queue.Pop(); !p.canceled {
				q.queue.Push(p)
			}
		}
		q.canceled = 0
	}
	return false
}

// dropCanceled empties the queue if all hits in it are canceled and no goroutine gathers: otherwise they
// would stay until another hit comes. The caller holds mu.
func (q *partition[K, R]) dropCanceled() {
	if q.gathering || q.queue.Len() > q.canceled {
		return
	}
	for ; q.canceled > 0; q.canceled-- {
		q.queue.Pop()
	}
}

// lone reports whether there is no sign of other hits. The caller holds mu.
func (q *partition[K, R]) lone() bool {
	return q.inFlight == 0 && !q.gathering && q.last <= 1
}

// requestAlone makes a request of one hit, which is not in the queue. The caller has counted it as in
// flight.
func (q *partition[K, R]) requestAlone(p *call[K, R]) {
	s := &p.alone[0]
	s.Key, s.N = p.key, p.increment
	err := q.combiner.options.Add(withoutEnd(p.ctx), p.alone[:])
	p.share.Result, p.err = s.Result, cmp.Or(err, s.Err)
	q.finishRequest()
}

// finishRequest is called when a request has been answered.
func (q *partition[K, R]) finishRequest() {
	q.mu.Lock()
	q.inFlight--
	q.continueQueue()
	q.mu.Unlock()
}

// withoutEnd returns a context with the values of ctx that does not end.
func withoutEnd(ctx context.Context) context.Context {
	if deadline.Endless(ctx) {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// request makes a request of the hits in the queue. Own is the hit of the caller, or nil: its outcome
// is set when request returns. The caller has set gathering.
func (q *partition[K, R]) request(own *call[K, R]) {
	b := q.gather()
	if b == nil {
		return
	}
	b.sumUp()
	err := q.combiner.options.Add(withoutEnd(b.calls[0].ctx), b.sums)
	q.finishRequest()
	b.finish(own, err)
	q.combiner.batches.Put(b)
}

// gather takes a batch from the queue, or returns nil if all hits have been canceled.
func (q *partition[K, R]) gather() *batch[K, R] {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Other goroutines may be about to hit, such as those of the last request. A lone hit does not
	// wait for them.
	for n, i := 0, 0; i < maxYields && n < q.queue.Len() && (q.last > 1 || q.inFlight > 0); i++ {
		n = q.queue.Len()
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
	}
	q.gathering = false
	b := q.combiner.batches.Get().(*batch[K, R])
	for q.queue.Len() > 0 && len(b.calls) < q.combiner.options.MaxHits {
		p := q.queue.Pop()
		if p.canceled {
			q.canceled--
			continue
		}
		p.begun = true
		q.combiner.queued.Add(-1)
		b.calls = append(b.calls, p)
	}
	q.last = len(b.calls)
	if q.last == 0 {
		q.combiner.batches.Put(b)
		return nil
	}
	q.inFlight++
	q.continueQueue()
	return b
}

// continueQueue makes a goroutine gather if hits are queued that may be sent. The caller holds mu.
func (q *partition[K, R]) continueQueue() {
	q.dropCanceled()
	if !q.gathering && q.queue.Len() > q.canceled && q.inFlight < q.combiner.options.MaxInFlight {
		q.gathering = true
		go q.request(nil)
	}
}

// batch is the hits that share a request.
type batch[K comparable, R any] struct {
	calls []*call[K, R]
	at    []int // the index in sums of the window of each hit
	sums  []Sum[K, R]
	index map[K]int // the index in sums of each window
}

// sumUp adds the hits up by window, and tells each hit what comes before it.
func (b *batch[K, R]) sumUp() {
	if len(b.calls) == 1 { // which is faster without the index
		p := b.calls[0]
		b.sums, b.at = append(b.sums, Sum[K, R]{Key: p.key, N: p.increment}), append(b.at, 0)
		return
	}
	for _, p := range b.calls {
		i, ok := b.index[p.key]
		if !ok {
			i = len(b.sums)
			b.index[p.key] = i
			b.sums = append(b.sums, Sum[K, R]{Key: p.key})
		}
		s := &b.sums[i]
		p.share.Before = s.N
		if s.N += p.increment; s.N < p.increment {
			s.N = 1<<64 - 1
		}
		b.at = append(b.at, i)
	}
}

// finish sets the outcomes of all hits, tells their callers except that of own, and empties the batch.
func (b *batch[K, R]) finish(own *call[K, R], err error) {
	for i, p := range b.calls {
		s := &b.sums[b.at[i]]
		p.share.Result, p.err = s.Result, cmp.Or(err, s.Err)
		if p != own {
			p.done <- struct{}{}
		}
	}
	if len(b.calls) > 1 {
		clear(b.index)
	}
	clear(b.calls)
	clear(b.sums)
	b.calls, b.at, b.sums = b.calls[:0], b.at[:0], b.sums[:0]
}
