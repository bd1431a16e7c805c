package coalesce

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/throttr-go/throttr/internal/deadline"
	"github.com/throttr-go/throttr/internal/fifo"
	"github.com/throttr-go/throttr/window"
)

// maxYields is how often a goroutine that gathers calls lets others run, as long as calls are added.
const maxYields = 4

// CombinerOptions are the settings of a Combiner. All must be set.
type CombinerOptions[C any] struct {
	// Send makes a request of calls, and stores in each of them what it has returned. Its ctx has the values of
	// that of the first call, and does not end.
	Send        func(ctx context.Context, calls []*Call[C])
	Partitions  int // the number of partitions
	MaxSize     int // the most that the sizes of the calls of a request add up to
	MaxInFlight int // the most requests in flight, of each partition
	MaxQueued   int // the most calls that wait for a request, of all partitions
}

// Combiner lets calls of any kind share requests, for a store that does many things in one atomic request. It
// differs from a [Coalescer] in that a call does not wait for the response to another one, unless MaxInFlight
// requests are in flight: a request has the calls of all goroutines that are ready to run when it is made.
//
// A Combiner has partitions. Calls of different partitions do not share requests.
type Combiner[C any] struct {
	options    CombinerOptions[C]
	partitions []atomic.Pointer[partition[C]] // made when they are needed
	queued     atomic.Int64                   // calls in the queues that are not canceled
	calls      sync.Pool                      // of *Call
	lists      sync.Pool                      // of *[]*Call: the calls of a request
}

// NewCombiner returns a combiner. It needs no closing: its goroutines end with the requests.
func NewCombiner[C any](o CombinerOptions[C]) *Combiner[C] {
	c := &Combiner[C]{options: o, partitions: make([]atomic.Pointer[partition[C]], o.Partitions)}
	c.calls.New = func() any { return &Call[C]{Size: 1, done: make(chan struct{}, 1)} }
	c.lists.New = func() any { return new([]*Call[C]) }
	return c
}

// Call is a call, and what Send has returned of it.
type Call[C any] struct {
	Value C
	Size  int // how much of MaxSize it takes: 1 unless it is set

	caller   context.Context // the ctx of the caller, without what bounds the call
	begun    bool            // the call is part of a request; guarded by the mutex of the partition
	canceled bool            // the caller has returned before that; guarded by the mutex of the partition
	done     chan struct{}   // has room for an element, which it receives when Send has returned
}

// Get returns a call to be filled in. Its Value is the zero one, or as it was when it was given to Put.
func (c *Combiner[C]) Get() *Call[C] { return c.calls.Get().(*Call[C]) }

// Put keeps a call for another one.
func (c *Combiner[C]) Put(p *Call[C]) {
	p.Size, p.caller, p.begun = 1, nil, false
	c.calls.Put(p)
}

// partition is the calls that may share requests.
//
// If no goroutine gathers, either no call is queued, or MaxInFlight requests are in flight.
type partition[C any] struct {
	combiner *Combiner[C]

	// mu guards the fields below. It is not held during a request.
	mu        sync.Mutex
	queue     fifo.Queue[*Call[C]]
	canceled  int  // elements of queue that are canceled
	gathering bool // a goroutine is about to make a request of the calls in the queue
	inFlight  int  // requests
	last      int  // the number of calls of the last request
}

// Do has a call of a partition sent, and returns when it has been answered. If err is not nil, it is that of
// ctx, or [window.ErrOverloaded], sent reports whether the call may have been sent, and the call belongs to the
// combiner.
func (c *Combiner[C]) Do(ctx context.Context, partition int, p *Call[C]) (sent bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	q := c.partition(partition)
	p.caller, _ = deadline.Split(ctx)
	q.mu.Lock()
	if q.lone() {
		p.begun = true
		q.inFlight++
		q.mu.Unlock()
		if deadline.Endless(ctx) {
			q.requestAlone(p)
			return true, nil
		}
		go func() {
			q.requestAlone(p)
			p.done <- struct{}{}
		}()
		return q.wait(ctx, p)
	}
	if c.queued.Add(1) > int64(c.options.MaxQueued) {
		c.queued.Add(-1)
		q.mu.Unlock()
		return false, window.ErrOverloaded
	}
	q.queue.Push(p)
	switch {
	case q.gathering || q.inFlight >= c.options.MaxInFlight:
		q.mu.Unlock()
	case deadline.Endless(ctx):
		// The call is the only one in the queue, and so part of the request.
		q.gathering = true
		q.mu.Unlock()
		q.request(p)
		return true, nil
	default:
		q.gathering = true
		q.mu.Unlock()
		go q.request(nil)
	}
	return q.wait(ctx, p)
}

// partition returns a partition.
func (c *Combiner[C]) partition(i int) *partition[C] {
	if q := c.partitions[i].Load(); q != nil {
		return q
	}
	c.partitions[i].CompareAndSwap(nil, &partition[C]{combiner: c})
	return c.partitions[i].Load()
}

// wait waits until a call has been answered, or until ctx ends.
func (q *partition[C]) wait(ctx context.Context, p *Call[C]) (sent bool, err error) {
	caller, bound := deadline.Ends(ctx)
	select {
	case <-p.done:
		return true, nil
	case <-caller:
	case <-bound:
	}
	sent = q.cancel(p)
	select {
	case <-p.done:
		return true, nil
	default:
		return sent, ctx.Err()
	}
}

// cancel removes a call from the queue. It reports whether it is too late for that.
func (q *partition[C]) cancel(p *Call[C]) (begun bool) {
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

// dropCanceled empties the queue if all calls in it are canceled and no goroutine gathers: otherwise they
// would stay until another one comes. The caller holds mu.
func (q *partition[C]) dropCanceled() {
	if q.gathering || q.queue.Len() > q.canceled {
		return
	}
	for ; q.canceled > 0; q.canceled-- {
		q.queue.Pop()
	}
}

// lone reports whether there is no sign of other calls. The caller holds mu.
func (q *partition[C]) lone() bool {
	return q.inFlight == 0 && !q.gathering && q.last <= 1
}

// requestAlone makes a request of one call, which is not in the queue. The caller has counted it as in
// flight.
func (q *partition[C]) requestAlone(p *Call[C]) {
	calls := q.combiner.lists.Get().(*[]*Call[C])
	*calls = append(*calls, p)
	q.combiner.options.Send(withoutEnd(p.caller), *calls)
	q.finishRequest()
	q.combiner.recycle(calls)
}

// finishRequest is called when a request has been answered.
func (q *partition[C]) finishRequest() {
	q.mu.Lock()
	q.inFlight--
	q.continueQueue()
	q.mu.Unlock()
}

// withoutEnd returns a context with the values of ctx that does not end.
func withoutEnd(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// request makes a request of the calls in the queue. Own is the call of the caller, or nil: it is answered when
// request returns. The caller has set gathering.
func (q *partition[C]) request(own *Call[C]) {
	calls := q.gather()
	if len(*calls) > 0 {
		q.combiner.options.Send(withoutEnd((*calls)[0].caller), *calls)
		q.finishRequest()
	}
	for _, p := range *calls {
		if p != own {
			p.done <- struct{}{}
		}
	}
	q.combiner.recycle(calls)
}

// gather takes the calls of a request from the queue. There are none if all have been canceled.
func (q *partition[C]) gather() *[]*Call[C] {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Other goroutines may be about to call, such as those of the last request. A lone call does not
	// wait for them.
	for n, i := 0, 0; i < maxYields && n < q.queue.Len() && (q.last > 1 || q.inFlight > 0); i++ {
		n = q.queue.Len()
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
	}
	q.gathering = false
	calls := q.combiner.lists.Get().(*[]*Call[C])
	for size := 0; q.queue.Len() > 0; {
		p := q.queue.At(0)
		if !p.canceled && len(*calls) > 0 && size+p.Size > q.combiner.options.MaxSize {
			break
		}
		q.queue.Pop()
		if p.canceled {
			q.canceled--
			continue
		}
		p.begun = true
		size += p.Size
		q.combiner.queued.Add(-1)
		*calls = append(*calls, p)
	}
	q.last = len(*calls)
	if q.last > 0 {
		q.inFlight++
		q.continueQueue()
	}
	return calls
}

// continueQueue makes a goroutine gather if calls are queued that may be sent. The caller holds mu.
func (q *partition[C]) continueQueue() {
	q.dropCanceled()
	if !q.gathering && q.queue.Len() > q.canceled && q.inFlight < q.combiner.options.MaxInFlight {
		q.gathering = true
		go q.request(nil)
	}
}

// recycle keeps a list of calls for others.
func (c *Combiner[C]) recycle(calls *[]*Call[C]) {
	clear(*calls)
	*calls = (*calls)[:0]
	c.lists.Put(calls)
}
