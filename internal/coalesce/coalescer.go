package coalesce

import (
	"context"
	"runtime"
	"sync"

	"github.com/throttr-go/throttr/internal/fifo"
	"github.com/throttr-go/throttr/window"
)

// keptCapacity is the capacity above which an idle coalescer releases its queue and batch.
const keptCapacity = 64

// Coalescer gathers the hits of one key and scale. Get one from [Group.New].
//
// One goroutine at a time runs a coalescer: it forms batches, has them counted, and finishes
// their hits. It is the caller of a hit that finds the coalescer idle and its window known, or a
// goroutine of the group that ends when the queue is empty.
type Coalescer struct {
	group  *Group
	window Window
	run    func() // runs the queue; made once, so that starting a goroutine does not allocate

	// mu guards the fields below, and all pending hits and operations. It is not held during
	// a request. Whenever it is not held:
	//   - If running is false, queue and batch are empty.
	//   - batch is empty, unless Count is being called.
	//   - What is pending is in the queue, or in the batch, or an operation that is being
	//     called. Otherwise it is finished, or its caller has canceled it.
	mu      sync.Mutex
	running bool // a goroutine runs the coalescer
	queue   fifo.Queue[*pending]
	batch   []*pending
	sum     Batch // describes batch
}

// pending is a hit or an operation whose caller has not returned.
type pending struct {
	hit       Hit
	operation Operation // if not nil, takes the place of hit

	begun    bool // in the batch, or being called: the store may know of it
	canceled bool // the caller has returned, because its ctx ended
	waiting  bool // the caller receives from done
	finished bool // result, sent and err are set

	result Result
	sent   bool
	err    error

	done chan struct{} // receives an element when a waiting caller's hit is finished; is reused
}

// New returns a coalescer for w.
func (g *Group) New(w Window) *Coalescer { return &Coalescer{group: g, window: w} }

// Do has a hit counted or decided. Result.Count is the hit's place in the window. If err is
// not nil, sent reports whether the hit may have been counted.
//
// The error is one of the Window or of ctx, [ErrQueueFull], or [window.ErrClosed].
func (c *Coalescer) Do(ctx context.Context, h Hit) (r Result, sent bool, err error) {
	if err := c.group.Check(ctx); err != nil {
		return Result{}, false, err
	}
	b := Batch{Now: c.group.options.Now()}
	c.mu.Lock()
	verdict, r, err := c.window.Admit(b, h)
	if verdict == Decided {
		c.mu.Unlock()
		return r, false, err
	}
	if verdict == Wait || c.running {
		return c.enqueue(ctx, h, nil)
	}
	// The fast path: nobody else is here, so the caller counts its hit itself.
	p := c.group.pending()
	p.hit = h
	c.running = true
	c.sum = b
	c.join(p)
	c.count(ctx)
	c.handOver()
	return c.wait(ctx, p)
}

// Exclusive calls op after all hits that are queued already, and before all that arrive later.
// It returns what op returns, or an error as Do does.
func (c *Coalescer) Exclusive(ctx context.Context, op Operation) (r Result, sent bool, err error) {
	if err := c.group.Check(ctx); err != nil {
		return Result{}, false, err
	}
	c.mu.Lock()
	return c.enqueue(ctx, Hit{}, op)
}

// Busy reports whether any hit or operation is not finished.
func (c *Coalescer) Busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// enqueue queues a hit, or op if that is not nil, and waits for it. The caller holds mu, and
// enqueue releases it.
func (c *Coalescer) enqueue(ctx context.Context, h Hit, op Operation) (Result, bool, error) {
	if c.queue.Len() >= c.group.options.MaxQueued {
		c.mu.Unlock()
		return Result{}, false, ErrQueueFull
	}
	p := c.group.pending()
	p.hit, p.operation = h, op
	c.queue.Push(p)
	if !c.running {
		c.running = true
		c.handOver()
	}
	return c.wait(ctx, p)
}

// wait waits until p is finished or ctx ends. The caller holds mu, and wait releases it.
func (c *Coalescer) wait(ctx context.Context, p *pending) (Result, bool, error) {
	if p.finished {
		c.mu.Unlock()
		return c.group.recycle(p)
	}
	p.waiting = true
	c.mu.Unlock()
	select {
	case <-p.done:
		return c.group.recycle(p)
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.finished {
		<-p.done
		return c.group.recycle(p)
	}
	p.canceled = true
	return Result{}, p.begun, ctx.Err()
}

// The methods below are called by the goroutine that runs the coalescer, with mu held. Those
// with a ctx release mu during the request.

// handOver makes a goroutine of the group run the coalescer, if anything is queued.
func (c *Coalescer) handOver() {
	switch {
	case c.queue.Len() == 0:
		c.running = false
	case c.group.register():
		if c.run == nil {
			c.run = c.runQueue
		}
		go c.run()
	default:
		c.failQueue()
		c.running = false
	}
}

// runQueue runs the coalescer until the queue is empty. It is a goroutine of the group.
func (c *Coalescer) runQueue() {
	defer c.group.goroutines.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx := c.group.ctx
	fresh, returning := false, 0
	for {
		if returning > 1 {
			// The callers of the last batch may be about to hit again. They would miss the
			// next request: in BenchmarkHitsPerRequest, 1.05 hits instead of 11 then share
			// one.
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
		next := c.next(fresh)
		fresh, returning = false, 0
		switch next {
		case stop:
			if c.queue.Cap() > keptCapacity || cap(c.batch) > keptCapacity {
				c.queue, c.batch = fifo.Queue[*pending]{}, nil
			}
			c.running = false
			return
		case count:
			returning = len(c.batch)
			c.count(ctx)
		case refresh:
			fresh = c.refresh(ctx)
		case operate:
			c.operate(ctx)
		}
	}
}

// action is what the goroutine that runs a coalescer does next.
type action uint8

const (
	stop    action = iota // nothing is queued
	count                 // count the batch
	refresh               // refresh the window
	operate               // call the operation that is first in the queue
)

// next forms a batch from the front of the queue, finishes the hits there that need no
// request, and returns what to do.
func (c *Coalescer) next(fresh bool) action {
	if c.group.ctx.Err() != nil {
		c.failQueue()
	}
	c.sum = Batch{Now: c.group.options.Now(), Fresh: fresh}
	for c.queue.Len() > 0 {
		p := c.queue.At(0)
		if p.canceled {
			c.queue.Pop()
			continue
		}
		verdict, r, err := Wait, Result{}, error(nil)
		if p.operation == nil && !(c.group.options.Single && len(c.batch) > 0) {
			verdict, r, err = c.window.Admit(c.sum, p.hit)
		}
		switch {
		case verdict == Decided:
			c.finish(c.queue.Pop(), r, false, err)
		case verdict == Join:
			c.join(c.queue.Pop())
		case len(c.batch) > 0:
			return count
		case p.operation != nil:
			return operate
		default:
			return refresh
		}
	}
	if len(c.batch) > 0 {
		return count
	}
	return stop
}

// join adds p to the batch.
func (c *Coalescer) join(p *pending) {
	p.begun = true
	c.batch = append(c.batch, p)
	c.sum.Hits++
	c.sum.Sum += p.hit.Increment
	c.sum.Limit = max(c.sum.Limit, p.hit.Limit)
}

// count has the batch counted. Its hits are then finished, or back at the front of the queue.
func (c *Coalescer) count(ctx context.Context) {
	b := c.sum
	c.mu.Unlock()
	o := c.window.Count(ctx, b)
	c.mu.Lock()
	switch {
	case o.Err != nil:
		err := c.reason(o.Err)
		for _, p := range c.batch {
			c.finish(p, Result{}, o.Sent, err)
		}
	case o.Counted:
		r := o.Result
		r.Count -= min(r.Count, b.Sum)
		for _, p := range c.batch {
			r.Count += p.hit.Increment
			c.finish(p, r, false, nil)
		}
	default:
		for i := len(c.batch) - 1; i >= 0; i-- {
			c.batch[i].begun = false
			c.queue.PushFront(c.batch[i])
		}
	}
	clear(c.batch)
	c.batch = c.batch[:0]
}

// refresh refreshes the window. It returns false if that fails, after failing the hits that
// are queued, up to the next operation.
func (c *Coalescer) refresh(ctx context.Context) (ok bool) {
	c.mu.Unlock()
	err := c.window.Refresh(ctx)
	c.mu.Lock()
	if err == nil {
		return true
	}
	err = c.reason(err)
	for c.queue.Len() > 0 && c.queue.At(0).operation == nil {
		c.finish(c.queue.Pop(), Result{}, false, err)
	}
	return false
}

// operate calls the operation that is first in the queue.
func (c *Coalescer) operate(ctx context.Context) {
	p := c.queue.Pop()
	p.begun = true
	c.mu.Unlock()
	r, sent, err := p.operation(ctx)
	c.mu.Lock()
	if err != nil {
		err = c.reason(err)
	}
	c.finish(p, r, sent, err)
}

// failQueue fails everything that is queued, because the group has been closed.
func (c *Coalescer) failQueue() {
	for c.queue.Len() > 0 {
		c.finish(c.queue.Pop(), Result{}, false, window.ErrClosed)
	}
}

// finish sets the result of p.
func (c *Coalescer) finish(p *pending, r Result, sent bool, err error) {
	p.result, p.sent, p.err = r, sent, err
	p.finished = true
	if p.waiting {
		p.done <- struct{}{}
	}
}

// reason returns window.ErrClosed if a request that failed with err was canceled because the
// group ended, and err otherwise.
func (c *Coalescer) reason(err error) error {
	if c.group.ctx.Err() != nil {
		return window.ErrClosed
	}
	return err
}
