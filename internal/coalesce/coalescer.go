package coalesce

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/fifo"
	"github.com/throttr-go/throttr/window"
)

const (
	// keptCapacity is the capacity above which an idle coalescer releases its slices.
	keptCapacity = 64
	// keptCanceled is how many canceled hits a queue may have, however short it is.
	keptCanceled = 64
	// maxAttempts bounds the refreshes for one hit and the requests that did not count it, in sum.
	maxAttempts = 16
)

// Coalescer gathers the hits of one count. Get one from [Group.New].
//
// One goroutine at a time runs a coalescer: it gathers hits that share a request, has them counted,
// and finishes them. It is the caller of a hit that finds the coalescer idle and its window known, the
// caller of TryAcquire, or a goroutine of the group that ends when the queue is empty.
type Coalescer struct {
	group   *Group
	windows Windows

	// mu guards the fields below, and all pending hits and operations. It is not held during
	// a request. Whenever it is not held:
	//   - If running is false, queue and shared are empty.
	//   - shared is empty, unless Count is being called.
	//   - What is pending is in queue, or in shared, or an operation that is being
	//     called. Otherwise it is finished, or its caller has canceled it.
	mu       sync.Mutex
	running  bool // a goroutine runs the coalescer
	queue    fifo.Queue[*pending]
	canceled int        // elements of queue that are canceled
	shared   []*pending // hits that share a request
	sum      SharedHits // describes them
	// refreshes is how many calls of Refresh have begun.
	refreshes uint64
	// uncertain says that a request has failed that the store may count later. Nothing else is
	// counted until a call of Refresh has succeeded. So callers that cancel one after the other
	// do not add up to many requests in flight.
	uncertain bool
}

// pending is a hit or an operation that was given to a coalescer and is not finished. Its caller
// may have canceled it.
type pending struct {
	hit       Hit
	operation Operation // if not nil, takes the place of hit
	refreshes uint64    // Coalescer.refreshes when it was queued
	attempts  int       // refreshes for it, and requests that did not count it

	begun    bool // shares a request, or is being called: the store may know of it
	canceled bool // the caller has returned, because its ctx ended
	waiting  bool // the caller receives from done
	finished bool // result, sent and err are set

	result window.Window
	sent   bool
	err    error

	done chan struct{} // receives an element when a waiting caller's hit is finished; is reused
}

// New returns a coalescer of hits in w.
func (g *Group) New(w Windows) *Coalescer { return &Coalescer{group: g, windows: w} }

// Do has a hit counted or decided. The Count of the window is the hit's position. If err is
// not nil, sent reports whether the hit may have been counted.
//
// The error is one of Windows or of ctx, [window.ErrOverloaded], [ErrAttempts], or
// [window.ErrClosed].
func (c *Coalescer) Do(ctx context.Context, h Hit) (w window.Window, sent bool, err error) {
	if err := c.group.Check(ctx); err != nil {
		return w, false, err
	}
	b := SharedHits{Now: time.Now()}
	c.mu.Lock()
	verdict, w := c.windows.Admit(b, h)
	if verdict == Decided {
		c.mu.Unlock()
		return w, false, nil
	}
	if verdict == Defer || c.running || c.uncertain {
		return c.enqueue(ctx, h, nil)
	}
	// The fast path: the coalescer is idle, so the caller counts its hit itself.
	p := c.group.newPending()
	p.hit, p.refreshes = h, c.refreshes
	c.running = true
	c.sum = b
	c.share(p)
	surplus := c.countShared(ctx)
	if surplus == 0 {
		c.handOver()
		return c.wait(ctx, p) // at once, unless p was not counted, and is in the queue
	}
	c.mu.Unlock()
	c.group.FinishCall(ctx, func(ctx context.Context) {
		c.windows.GiveBack(ctx, surplus)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.handOver()
	})
	return c.group.recycle(p) // it is finished, as it was counted
}

// Operate calls op after all hits that are queued already, and before all that are queued later.
// Hits that need no request are decided meanwhile. Operate returns what op returns, or an error
// as Do does.
func (c *Coalescer) Operate(ctx context.Context, op Operation) (w window.Window, sent bool, err error) {
	if err := c.group.Check(ctx); err != nil {
		return w, false, err
	}
	c.mu.Lock()
	return c.enqueue(ctx, Hit{}, op)
}

// TryAcquire lets the caller count in the window, if the coalescer is idle: until Release, hits and
// operations are queued. It returns false if the coalescer is not idle.
func (c *Coalescer) TryAcquire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running || c.uncertain {
		return false
	}
	c.running = true
	return true
}

// Release ends what TryAcquire has begun. Uncertain says that the store may count something later that
// the caller has sent.
func (c *Coalescer) Release(uncertain bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uncertain = c.uncertain || uncertain
	c.handOver()
}

// Busy reports whether any hit or operation is not finished.
func (c *Coalescer) Busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// enqueue queues a hit, or op if that is not nil, and waits for it. The caller holds mu, and
// enqueue releases it.
func (c *Coalescer) enqueue(ctx context.Context, h Hit, op Operation) (w window.Window, sent bool, err error) {
	if c.queue.Len()-c.canceled >= c.group.maxQueued {
		c.mu.Unlock()
		return w, false, window.ErrOverloaded
	}
	p := c.group.newPending()
	p.hit = h
	p.operation = op
	p.refreshes = c.refreshes
	c.queue.Push(p)
	if !c.running {
		c.running = true
		c.handOver()
	}
	return c.wait(ctx, p)
}

// wait waits until p is finished, or until ctx or the group ends. The caller holds mu, and wait
// releases it.
func (c *Coalescer) wait(ctx context.Context, p *pending) (w window.Window, sent bool, err error) {
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
		err = ctx.Err()
	case <-c.group.ctx.Done(): // the request in flight may be that of a caller, and go on
		err = window.ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.finished {
		<-p.done
		return c.group.recycle(p)
	}
	c.cancel(p)
	return w, p.begun, err
}

// cancel marks p as canceled. A canceled element of the queue is dropped when it comes to the
// front, or when more than half of the queue is canceled. The caller holds mu.
func (c *Coalescer) cancel(p *pending) {
	p.canceled = true
	if p.begun {
		return
	}
	c.canceled++
	if c.canceled <= max(keptCanceled, c.queue.Len()/2) {
		return
	}
	for range c.queue.Len() {
		if p := c.queue.Pop(); !p.canceled {
			c.queue.Push(p)
		}
	}
	c.canceled = 0
}

// The methods below are called by the goroutine that runs the coalescer, with mu held. Those
// with a ctx release mu during the request.

// handOver ends that the caller runs the coalescer: a goroutine of the group then does if anything is
// queued, and otherwise the coalescer is idle.
func (c *Coalescer) handOver() {
	switch {
	case c.queue.Len() == 0:
		c.running = false
	case c.group.register():
		go c.runQueue()
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
			// The callers of the last hits may be about to hit again. They would miss the
			// next request: with 64 callers for each processor, 1.05 hits instead of 11 then share
			// one.
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
		if ctx.Err() != nil {
			c.failQueue()
		}
		c.gather(fresh)
		fresh = false
		returning = 0
		switch c.nextTask() {
		case stop:
			if c.queue.Cap() > keptCapacity || cap(c.shared) > keptCapacity {
				c.queue, c.shared = fifo.Queue[*pending]{}, nil
			}
			c.running = false
			return
		case count:
			returning = len(c.shared)
			if surplus := c.countShared(ctx); surplus > 0 {
				c.mu.Unlock()
				c.group.limited(func(ctx context.Context) { c.windows.GiveBack(ctx, surplus) })
				c.mu.Lock()
			}
		case refresh:
			fresh = c.refreshWindow(ctx)
		case operate:
			c.runOperation(ctx)
		}
	}
}

// front returns the first element of the queue, or nil if the queue is empty. It drops canceled
// elements.
func (c *Coalescer) front() *pending {
	for c.queue.Len() > 0 {
		if p := c.queue.At(0); !p.canceled {
			return p
		}
		c.pop()
	}
	return nil
}

// pop removes the first element of the queue and returns it.
func (c *Coalescer) pop() *pending {
	p := c.queue.Pop()
	if p.canceled {
		c.canceled--
	}
	return p
}

// gather moves hits at the front of the queue to shared, and finishes those that need no
// request. It ends at the first operation, and at the first hit that does not share. If fresh
// is true, Refresh has just succeeded.
func (c *Coalescer) gather(fresh bool) {
	c.sum = SharedHits{Now: time.Now(), Fresh: fresh}
	for {
		p := c.front()
		if p == nil || p.operation != nil {
			return
		}
		switch verdict, w, err := c.admit(p); verdict {
		case Decided:
			c.finish(c.pop(), w, false, err)
		case Share:
			c.share(c.pop())
		default:
			return
		}
	}
}

// admit decides about p, the first element of the queue, which is a hit.
func (c *Coalescer) admit(p *pending) (verdict Verdict, w window.Window, err error) {
	b := c.sum
	b.QueuedBefore = b.Fresh && p.refreshes < c.refreshes
	verdict, w = c.windows.Admit(b, p.hit)
	if verdict == Share && c.uncertain {
		verdict = Defer
	}
	if verdict == Defer && len(c.shared) == 0 && p.attempts >= maxAttempts {
		return Decided, window.Window{}, ErrAttempts
	}
	return verdict, w, nil
}

// share adds p to the hits that share a request.
func (c *Coalescer) share(p *pending) {
	p.begun = true
	c.shared = append(c.shared, p)
	c.sum.Hits++
	c.sum.Sum += p.hit.Increment
	c.sum.Max = max(c.sum.Max, p.hit.Max)
	c.sum.Must = c.sum.Must || p.hit.Must
	c.sum.Takes = c.sum.Takes || p.hit.Take
}

// task is what the goroutine that runs a coalescer does next.
type task uint8

const (
	stop    task = iota // nothing is queued
	count               // count the shared hits
	refresh             // refresh the window
	operate             // call the operation that is first in the queue
)

// nextTask returns what to do after gather.
func (c *Coalescer) nextTask() task {
	if len(c.shared) > 0 {
		return count
	}
	switch p := c.front(); {
	case p == nil:
		return stop
	case p.operation != nil:
		return operate
	default:
		return refresh
	}
}

// countShared has the shared hits counted. They are then finished, or back at the front of the
// queue. It returns what has to be given back before anything else is counted.
func (c *Coalescer) countShared(ctx context.Context) (surplus uint64) {
	b := c.sum
	c.mu.Unlock()
	o := c.windows.Count(ctx, b)
	c.mu.Lock()
	switch {
	case o.Err != nil:
		c.uncertain = c.uncertain || o.Sent
		err := c.reason(ctx, o.Err)
		for _, p := range c.shared {
			c.finish(p, window.Window{}, o.Sent, err)
		}
	case o.WindowOpen:
		// The callers who are refused ask when there is room: that must not count what they wanted.
		if surplus = c.surplus(&o); surplus > 0 {
			c.windows.Subtract(surplus)
		}
		c.assign(&o)
	default:
		for i := len(c.shared) - 1; i >= 0; i-- {
			c.requeue(c.shared[i])
		}
	}
	clear(c.shared)
	c.shared = c.shared[:0]
	return surplus
}

// refuses reports whether a hit that was counted does not fit the window, in which count was
// counted before it, or is a take that does not fit its limit.
func (o *Outcome) refuses(h Hit, count uint64) bool {
	return o.Full || h.Take && (h.Max < count || h.Increment > h.Max-count)
}

// surplus returns what takes that are refused have added to the window, which is to be given back.
func (c *Coalescer) surplus(o *Outcome) (surplus uint64) {
	if !c.sum.Takes || o.Full {
		return 0
	}
	count := o.Window.Count - min(o.Window.Count, c.sum.Sum)
	for _, p := range c.shared {
		if o.refuses(p.hit, count) {
			surplus += p.hit.Increment
		} else {
			count += p.hit.Increment
		}
	}
	return surplus
}

// assign finishes the shared hits, which were counted, each with its position in the count. A take
// that is refused does not move the positions of those after it.
func (c *Coalescer) assign(o *Outcome) {
	w := o.Window
	if !o.Full {
		w.Count -= min(w.Count, c.sum.Sum)
	}
	for _, p := range c.shared {
		w.Refused = o.refuses(p.hit, w.Count)
		if !w.Refused {
			w.Count += p.hit.Increment
		}
		c.finish(p, w, false, nil)
	}
}

// requeue makes p, a hit that was not counted, the first element of the queue.
func (c *Coalescer) requeue(p *pending) {
	p.begun = false
	p.attempts++
	switch {
	case p.canceled:
	case p.attempts >= maxAttempts:
		c.finish(p, window.Window{}, false, ErrAttempts)
	default:
		c.queue.PushFront(p)
	}
}

// refreshWindow refreshes the window for the hit that is first in the queue. It returns false if
// that fails, after failing the hits that are queued, up to the next operation.
func (c *Coalescer) refreshWindow(ctx context.Context) (ok bool) {
	c.queue.At(0).attempts++
	c.refreshes++
	c.mu.Unlock()
	err := c.windows.Refresh(ctx)
	c.mu.Lock()
	if err == nil {
		c.uncertain = false
		return true
	}
	err = c.reason(ctx, err)
	for c.queue.Len() > 0 && c.queue.At(0).operation == nil {
		c.finish(c.pop(), window.Window{}, false, err)
	}
	return false
}

// runOperation calls the operation that is first in the queue.
func (c *Coalescer) runOperation(ctx context.Context) {
	p := c.pop()
	p.begun = true
	c.mu.Unlock()
	w, sent, err := p.operation(ctx)
	c.mu.Lock()
	if err != nil {
		err = c.reason(ctx, err)
	}
	c.finish(p, w, sent, err)
}

// failQueue fails everything that is queued, because the group has been closed.
func (c *Coalescer) failQueue() {
	for c.queue.Len() > 0 {
		c.finish(c.pop(), window.Window{}, false, window.ErrClosed)
	}
}

// finish sets the result of p.
func (c *Coalescer) finish(p *pending, w window.Window, sent bool, err error) {
	p.result = w
	p.sent = sent
	p.err = err
	p.finished = true
	if p.waiting {
		p.done <- struct{}{}
	}
}

// reason returns window.ErrClosed if a request with ctx failed with err because the group has
// ended, and err otherwise.
func (c *Coalescer) reason(ctx context.Context, err error) error {
	if ctx == c.group.ctx && ctx.Err() != nil {
		return window.ErrClosed
	}
	return err
}
