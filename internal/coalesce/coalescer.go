package coalesce

import (
	"context"
	"runtime"
	"sync"

	"github.com/throttr-go/throttr/internal/fifo"
	"github.com/throttr-go/throttr/window"
)

// keptCapacity is the largest queue or batch whose memory is kept while nothing is queued.
const keptCapacity = 64

// Coalescer gathers the hits of one key and scale. Get one from [Group.New].
//
// One goroutine at a time serves a coalescer: it forms batches, has them counted and
// answers their hits. The server is either the only caller, for its own hit, or a goroutine
// of the group, which ends when nothing is queued.
type Coalescer struct {
	group  *Group
	window Window
	serve  func() // what a serving goroutine runs; made once, so that starting one does not allocate

	// mu guards what follows, and all pending hits. Everybody holds it for a moment only:
	// the server releases it for the time of a request. Invariants, when it is released:
	//
	//   - If serving is false, queue and batch are empty.
	//   - batch has hits in it only while Count runs.
	//   - A hit is in queue, or in batch, or done; an operation is in queue, or running, or
	//     done.
	mu      sync.Mutex
	serving bool
	queue   fifo.Queue[*pending]
	batch   []*pending
	sum     Batch // describes batch
}

// pending is a hit or an operation with somebody who waits for it.
type pending struct {
	hit       Hit
	operation Operation // in place of a hit, if not nil

	begun    bool // in the batch, or running: it may reach the store
	canceled bool // its caller has returned, because its ctx has ended
	waits    bool // its caller waits for done
	finished bool // the answer is there

	result Result
	sent   bool
	err    error

	done chan struct{} // receives one element when finished becomes true, if waits is; lives as long as the pending hit
}

// New returns a coalescer for w.
func (g *Group) New(w Window) *Coalescer { return &Coalescer{group: g, window: w} }

// Do has a hit counted, or decided without being counted, and returns its place in the
// window. With an error, sent says that it may have been counted all the same.
//
// The error is that of the Window, ctx's, [ErrQueueFull] or [window.ErrClosed].
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
	if verdict == Wait || c.serving {
		return c.enqueue(ctx, h, nil)
	}
	p := c.group.pending()
	p.hit = h
	c.serving = true
	c.sum = b
	c.join(p)
	c.count(ctx)
	c.handOver()
	return c.wait(ctx, p)
}

// Exclusive runs an operation between two batches: after all hits that are queued already,
// and before all that come later. The operation's ctx is the group's.
func (c *Coalescer) Exclusive(ctx context.Context, op Operation) (r Result, sent bool, err error) {
	if err := c.group.Check(ctx); err != nil {
		return Result{}, false, err
	}
	c.mu.Lock()
	return c.enqueue(ctx, Hit{}, op)
}

// Busy reports whether the coalescer has hits or operations that are not done.
func (c *Coalescer) Busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serving
}

// QueueCap returns how many pending hits fit the queue before it grows, for tests.
func (c *Coalescer) QueueCap() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.Cap()
}

// enqueue queues a hit, or op if that is not nil, and waits until it is done. The caller
// holds mu, which enqueue releases.
func (c *Coalescer) enqueue(ctx context.Context, h Hit, op Operation) (Result, bool, error) {
	if c.queue.Len() >= c.group.options.MaxQueued {
		c.mu.Unlock()
		return Result{}, false, ErrQueueFull
	}
	p := c.group.pending()
	p.hit, p.operation = h, op
	c.queue.Push(p)
	if !c.serving {
		c.serving = true
		c.handOver()
	}
	return c.wait(ctx, p)
}

// wait waits until p is done or ctx ends. The caller holds mu, which wait releases.
func (c *Coalescer) wait(ctx context.Context, p *pending) (Result, bool, error) {
	if p.finished {
		c.mu.Unlock()
		return c.group.recycle(p)
	}
	p.waits = true
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

// The caller of the following methods holds mu and is the server. Those that are given a
// ctx release mu for the time of a request.

// handOver ends serving: a goroutine continues if anything is queued.
func (c *Coalescer) handOver() {
	switch {
	case c.queue.Len() == 0:
		c.serving = false
	case c.group.register():
		if c.serve == nil {
			c.serve = c.run
		}
		go c.serve()
	default:
		c.failQueue()
		c.serving = false
	}
}

// run serves until nothing is queued.
func (c *Coalescer) run() {
	defer c.group.running.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx := c.group.ctx
	fresh, answered := false, 0
	for {
		if answered > 1 {
			// The callers of the last batch may be back with another hit. It would miss the
			// next request: BenchmarkHowManyHitsShareARequest then has 1.05 hits per request
			// instead of 11.
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
		answered = 0
		action := c.next(fresh)
		fresh = false
		switch action {
		case count:
			answered = len(c.batch)
			c.count(ctx)
		case refresh:
			fresh = c.refresh(ctx)
		case operate:
			c.operate(ctx)
		case rest:
			if c.queue.Cap() > keptCapacity || cap(c.batch) > keptCapacity {
				c.queue, c.batch = fifo.Queue[*pending]{}, nil
			}
			c.serving = false
			return
		}
	}
}

// action is what a serving goroutine does next.
type action uint8

const (
	rest    action = iota // nothing is queued
	count                 // count the batch
	refresh               // refresh the window
	operate               // run the operation that is first in the queue
)

// next forms a batch from the front of the queue, answers the hits there that need no
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
	return rest
}

// join adds p to the batch.
func (c *Coalescer) join(p *pending) {
	p.begun = true
	c.batch = append(c.batch, p)
	c.sum.Hits++
	c.sum.Sum += p.hit.Increment
	c.sum.Limit = max(c.sum.Limit, p.hit.Limit)
}

// count has the batch counted. Then its hits are done, or first in the queue again.
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

// refresh refreshes the window. An error fails the hits that wait for it.
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

// operate runs the operation that is first in the queue.
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

// failQueue fails all that is queued: the group has been closed.
func (c *Coalescer) failQueue() {
	for c.queue.Len() > 0 {
		c.finish(c.queue.Pop(), Result{}, false, window.ErrClosed)
	}
}

// finish answers p.
func (c *Coalescer) finish(p *pending, r Result, sent bool, err error) {
	p.result, p.sent, p.err = r, sent, err
	p.finished = true
	if p.waits {
		p.done <- struct{}{}
	}
}

// reason returns why a request has failed: the end of the group, if that has ended, and
// otherwise err.
func (c *Coalescer) reason(err error) error {
	if c.group.ctx.Err() != nil {
		return window.ErrClosed
	}
	return err
}
