package fixedwindow

import (
	"container/list"
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// maxAttempts bounds the calls of prepare for one hit and the requests that did not count it, in sum.
const maxAttempts = 16

// hit is a hit, a take or a charge: it adds n to a window. Comments call all of them hits, where it does not matter.
type hit struct {
	max, n uint64
	// take says that the hit counts only if the count is at most max then. Otherwise it is refused, and changes
	// nothing.
	take bool
	// charge says that the hit is counted whatever is known, and that a count that would pass the largest stays there.
	charge bool
}

// hasRoom reports whether a window with a count has room for a take. Other hits are counted anyway.
func (h *hit) hasRoom(count uint64) bool {
	return !h.take || count <= h.max && h.n <= h.max-count
}

// answer is what became of a hit or an operation.
type answer struct {
	window window.Window // that of a hit or a Set
	made   bool          // an operation has ended a window, or given back
	sent   bool          // if err is not nil, whether it may have been counted or done
	err    error
}

// operation changes the window without counting hits, as Set and Reset do.
type operation func(ctx context.Context) answer

// caller is a caller whose hit or operation is queued or under way.
type caller struct {
	hit       hit
	operation operation     // if not nil, takes the place of hit
	waits     *list.Element // of queue.waiting; nil if the server may know of the hit or operation
	prepares  uint64        // queue.prepares when it was queued
	attempts  int           // calls of prepare for it, and requests that did not count it
	gone      bool          // it has returned without an answer, because its ctx ended

	answer answer
	done   chan struct{} // has an element if there is an answer; is reused
}

func newCaller() any { return &caller{done: make(chan struct{}, 1)} }

// finish sets the answer.
func (c *caller) finish(a answer) {
	c.answer = a
	c.done <- struct{}{}
}

// finished reports whether there is an answer, and takes it.
func (c *caller) finished() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// shared is hits that share a request.
type shared struct {
	callers []*caller
	sum     uint64    // of n
	max     uint64    // the highest limit
	takes   bool      // one is a take
	charge  bool      // one is a charge
	now     time.Time // when they were gathered
}

// reset removes all hits. The next ones are gathered now.
func (hits *shared) reset(now time.Time) { *hits = shared{callers: hits.callers[:0], now: now} }

// add adds the hit of a caller.
func (hits *shared) add(c *caller) {
	hits.callers = append(hits.callers, c)
	hits.sum += c.hit.n
	hits.max = max(hits.max, c.hit.max)
	hits.takes = hits.takes || c.hit.take
	hits.charge = hits.charge || c.hit.charge
}

// queue is what waits to be counted or done in the windows of a count. One request at a time counts. Hits that come
// meanwhile share the next one, which adds their sum, and each of them gets its own place in the count.
//
// One goroutine at a time serves a queue: the caller of a hit that finds nobody serving and a known window, the caller
// of hold, or a goroutine that ends when the queue is empty. The mutex of the countState guards the fields, and all
// callers. It is not held during a request. Whenever it is not held:
//
//   - If serving is false, waiting, shared and refused are empty.
//   - prepared is false, and there is no plan.
//   - A caller is in waiting, shared or refused, or its operation is being called. Otherwise it has its answer, or is
//     gone.
type queue struct {
	serving bool      // a goroutine serves the queue
	waiting list.List // of *caller
	shared  shared    // hits in flight
	// refused is the takes of the last request that were refused, until what they have added is given back. Counted is
	// the outcome of that request.
	refused  []*caller
	counted  outcome
	prepares uint64 // how often prepare was called
	// prepared says that the last thing done was to call prepare, for the hits that are gathered next. Plan is what it
	// has returned.
	prepared bool
	plan     plan
	// uncertain says that a request has failed that the server may count later. Nothing else is counted until prepare has
	// been called. So callers that cancel one after the other do not add up to many requests in flight.
	uncertain bool
}

// countHit has a hit counted or decided. The Count of the window is the hit's place.
func (s *countState) countHit(ctx context.Context, h hit) answer {
	if err := s.backend.group.check(ctx); err != nil {
		return answer{err: err}
	}
	others := shared{now: time.Now()} // there are none
	s.mu.Lock()
	verdict, w := s.admit(&others, &h, false)
	if verdict == decided {
		s.mu.Unlock()
		return answer{window: w}
	}
	c := s.backend.callers.Get().(*caller)
	c.hit = h
	if verdict == waits || s.queue.serving {
		s.enqueue(c)
	} else {
		s.queue.serving = true
		s.queue.shared.reset(others.now)
		s.queue.shared.add(c)
		s.countShared(ctx, plan{}) // c is finished then, unless its hit was not counted, or was refused
		s.handOver()
	}
	s.mu.Unlock()
	return s.wait(ctx, c)
}

// operate calls op after all hits that are queued already, and before all that are queued later. Hits that need no
// request are decided meanwhile. It returns what op returns, or an error as countHit does.
func (s *countState) operate(ctx context.Context, op operation) answer {
	if err := s.backend.group.check(ctx); err != nil {
		return answer{err: err}
	}
	c := s.backend.callers.Get().(*caller)
	c.operation = op
	s.mu.Lock()
	s.enqueue(c)
	s.mu.Unlock()
	return s.wait(ctx, c)
}

// hold lets the caller count in the window, if nobody serves the queue: until release, hits and operations wait. It
// returns false if somebody does.
func (s *countState) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.serving || s.queue.uncertain {
		return false
	}
	s.queue.serving = true
	return true
}

// release ends what hold has begun. Uncertain says that the server may count something later that the caller has sent.
func (s *countState) release(uncertain bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.uncertain = s.queue.uncertain || uncertain
	s.handOver()
}

// busy reports whether a hit or operation is queued or under way.
func (s *countState) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.serving
}

// enqueue queues a hit or an operation, or finishes its caller if too much is queued. It is called with mu held.
func (s *countState) enqueue(c *caller) {
	if s.queue.waiting.Len() >= s.backend.MaxQueued {
		c.finish(answer{err: window.ErrOverloaded})
		return
	}
	c.prepares = s.queue.prepares
	c.waits = s.queue.waiting.PushBack(c)
	if !s.queue.serving {
		s.queue.serving = true
		s.handOver()
	}
}

// wait waits for the answer to a caller, or until ctx or the backend ends.
func (s *countState) wait(ctx context.Context, c *caller) answer {
	if c.finished() {
		return s.recycle(ctx, c)
	}
	var err error
	select {
	case <-c.done:
		return s.recycle(ctx, c)
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.backend.group.ctx.Done(): // the request in flight may be that of a caller, and go on
		err = window.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.finished() {
		return s.recycle(ctx, c)
	}
	c.gone = true
	switch {
	case c.waits != nil:
		s.queue.waiting.Remove(c.waits)
		return answer{err: err}
	case c.answer.window.Refused: // what it has added is being given back
		return c.answer
	default:
		return answer{sent: true, err: err}
	}
}

// recycle returns the answer to a caller, which can be used again.
func (s *countState) recycle(ctx context.Context, c *caller) answer {
	a := c.answer
	*c = caller{done: c.done}
	s.backend.callers.Put(c)
	if errors.Is(a.err, context.Canceled) && ctx.Err() == nil { // what served the queue has ended with the backend
		a.err = window.ErrClosed
	}
	return a
}

// The methods below are called by the goroutine that serves the queue, with mu held. Those with a ctx release mu
// during the request.

// handOver ends that the caller serves the queue. A goroutine does so from now on if there is something to do.
func (s *countState) handOver() {
	switch {
	case s.queue.waiting.Len() == 0 && len(s.queue.refused) == 0:
		s.queue.serving = false
	case !s.backend.group.start(s.serve):
		s.finishRefused() // what they have added stays counted
		s.failWaiting()
		s.queue.serving = false
	}
}

// serve serves the queue until it is empty.
func (s *countState) serve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx := s.backend.group.ctx
	for {
		if len(s.queue.refused) > 0 {
			s.giveBackRefused(ctx)
		}
		if ctx.Err() != nil {
			s.failWaiting()
		}
		s.gather()
		p := s.queue.plan
		s.queue.prepared = false
		s.queue.plan = plan{}
		switch n := len(s.queue.shared.callers); {
		case n > 0:
			s.countShared(ctx, p)
			if n > 1 {
				s.yield()
			}
		case s.queue.waiting.Len() == 0:
			s.queue.shared = shared{}
			s.queue.refused = nil
			s.queue.serving = false
			return
		case s.first().operation != nil:
			s.runOperation(ctx)
		default:
			s.prepareFor(ctx, s.first())
		}
	}
}

// yield lets the callers of the last hits run, who may be about to hit again. They would miss the next request: with
// 64 callers for each processor, 1.05 hits instead of 11 then share one.
func (s *countState) yield() {
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
}

// first returns the first caller that waits.
func (s *countState) first() *caller { return s.queue.waiting.Front().Value.(*caller) }

// pop removes the first caller that waits and returns it.
func (s *countState) pop() *caller {
	c := s.first()
	s.queue.waiting.Remove(c.waits)
	c.waits = nil
	return c
}

// gather moves the first hits that wait to shared, and finishes those that need no request. It ends at the first
// operation, and at the first hit that does not share.
func (s *countState) gather() {
	s.queue.shared.reset(time.Now())
	for s.queue.waiting.Len() > 0 && s.first().operation == nil {
		c := s.first()
		verdict, w := s.admit(&s.queue.shared, &c.hit, s.queue.prepared && c.prepares < s.queue.prepares)
		switch {
		case verdict == decided:
			s.pop().finish(answer{window: w})
		case c.attempts >= maxAttempts:
			s.pop().finish(answer{err: overError(s.bands.Scale)})
		case verdict == shares:
			s.queue.shared.add(s.pop())
		default:
			return
		}
	}
}

// countShared has the shared hits counted, in the known window or as planned. They then have their results, or are the
// first that wait again, or are refused.
func (s *countState) countShared(ctx context.Context, p plan) {
	hits := &s.queue.shared
	s.mu.Unlock()
	o := s.count(ctx, hits, p)
	s.mu.Lock()
	w, ok := s.conclude(&o)
	switch {
	case o.err != nil:
		s.queue.uncertain = s.queue.uncertain || o.sent
		for _, c := range hits.callers {
			c.finish(answer{sent: o.sent, err: o.err})
		}
	case ok:
		s.assign(w, o.result == slot.Full)
		s.queue.counted = o
	default: // they are the first that wait, in their order
		for i := len(hits.callers) - 1; i >= 0; i-- {
			c := hits.callers[i]
			c.attempts++
			if !c.gone {
				c.waits = s.queue.waiting.PushFront(c)
			}
		}
	}
	clear(hits.callers)
	hits.callers = hits.callers[:0]
}

// assign gives each of the shared hits its place in the count, unless the counter was too full for them. A take that
// is refused does not move the places of those after it. What it has added is not in the known count: a caller that
// asks again when there is room must not find what it wanted itself.
func (s *countState) assign(w window.Window, full bool) {
	if !full {
		w.Count -= min(w.Count, s.queue.shared.sum)
	}
	for _, c := range s.queue.shared.callers {
		w.Refused = full || !c.hit.hasRoom(w.Count)
		switch {
		case full:
			c.finish(answer{window: w})
		case w.Refused:
			c.answer.window = w
			s.queue.refused = append(s.queue.refused, c)
			s.known.subtract(c.hit.n)
		default:
			w.Count += c.hit.n
			c.finish(answer{window: w})
		}
	}
}

// giveBackRefused gives back what refused takes have added, before anything else is counted.
func (s *countState) giveBackRefused(ctx context.Context) {
	var n uint64
	for _, c := range s.queue.refused {
		n += c.hit.n
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, finishTime)
	s.giveBackTo(ctx, s.queue.counted.window, s.queue.counted.conn, n) // what fails stays counted until the window ends
	cancel()
	s.mu.Lock()
	s.finishRefused()
}

// finishRefused finishes the refused takes.
func (s *countState) finishRefused() {
	for _, c := range s.queue.refused {
		c.finish(c.answer)
	}
	clear(s.queue.refused)
	s.queue.refused = s.queue.refused[:0]
}

// prepareFor calls prepare for the first caller that waits. If that fails, it fails the hits that wait, up to the next
// operation.
func (s *countState) prepareFor(ctx context.Context, first *caller) {
	first.attempts++
	s.queue.prepares++
	s.mu.Unlock()
	p, err := s.prepare(ctx)
	s.mu.Lock()
	if err != nil {
		for s.queue.waiting.Len() > 0 && s.first().operation == nil {
			s.pop().finish(answer{err: err})
		}
		return
	}
	s.queue.uncertain = false
	s.queue.prepared = true
	s.queue.plan = p
}

// runOperation calls the operation of the first caller that waits.
func (s *countState) runOperation(ctx context.Context) {
	c := s.pop()
	s.mu.Unlock()
	a := c.operation(ctx)
	s.mu.Lock()
	c.finish(a)
}

// failWaiting fails everything that waits, because the backend has been closed.
func (s *countState) failWaiting() {
	for s.queue.waiting.Len() > 0 {
		s.pop().finish(answer{err: window.ErrClosed})
	}
}
