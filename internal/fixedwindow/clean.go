package fixedwindow

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/window"
)

// maxRequests is how many requests a call has that cleans keys, at most.
const maxRequests = 256

// cleaning is the way of one key's records to their removal, or to what else is to be done about
// records that are not in use.
type cleaning[T codec.Value] struct {
	records records[T]
	slots   *slots[T] // with the duty; nil for what a sweep has found
	removal *removal  // of a sweep; nil for a duty

	history slot.History
	again   time.Time // when to look the slots up again
	done    bool      // there is nothing to do before that
	absent  bool      // there are no records
	removed int       // records
}

// decide returns what follows the last lookup.
func (k *cleaning[T]) decide() slot.Action {
	if k.slots == nil {
		return k.records.bands.Clean(k.history, k.records.bands.Watch)
	}
	return k.slots.cleanAction(k.history)
}

// cleaner cleans keys with about the same guard on one server, not more at a time than the server is fast enough for.
// They share calls, and they wait for their guards together. A goroutine does that as long as there are keys.
type cleaner[T codec.Value] struct {
	janitor *janitor[T]
	pace    pace
	wake    chan struct{} // has an element if there may be something to do before the goroutine expects it

	// The janitor's mutex guards these.
	running  bool           // there is a goroutine
	queue    dutyQueue[T]   // duties that are not begun
	removals []*cleaning[T] // of sweeps, that are not begun

	// The goroutine uses these.
	conn   *conn.Conn[T]  // of the last lookup
	active []*cleaning[T] // begun
}

// push queues a duty. The caller holds the janitor's mutex.
func (c *cleaner[T]) push(s *slots[T], due time.Time) {
	s.due = due
	heap.Push(&c.queue, s)
	c.notify(s)
}

// notify tells the goroutine if s is the first of the queue. The caller holds the janitor's mutex.
func (c *cleaner[T]) notify(s *slots[T]) {
	if s.index == 0 {
		c.start()
	}
}

// start starts the goroutine, or tells it that there is something new. It returns false if the janitor closes and
// nothing is left to do. The caller holds the janitor's mutex.
func (c *cleaner[T]) start() bool {
	if !c.running && !c.janitor.closed {
		c.running = true
		c.janitor.running.Go(c.run)
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return c.running
}

// run cleans keys as long as there are any, and until the backend ends.
func (c *cleaner[T]) run() {
	ctx := c.janitor.ctx
	failures := 0
	for {
		ready, next, ok := c.gather()
		if !ok {
			return
		}
		if len(ready) == 0 {
			c.sleep(ctx, next)
			continue
		}
		err := c.round(ctx, ready)
		c.finish()
		if err == nil {
			failures = 0
			continue
		}
		failures++
		if failures%maxTries == 0 {
			c.janitor.mu.Lock()
			c.fail(err)
			c.janitor.mu.Unlock()
		}
		_ = outage.Sleep(ctx, minPause)
	}
}

// gather begins with what is due, and returns the keys that are to be looked up now. If there are none, next is when
// there will be. It returns false if the goroutine is to end.
func (c *cleaner[T]) gather() (ready []*cleaning[T], next time.Time, ok bool) {
	c.janitor.mu.Lock()
	defer c.janitor.mu.Unlock()
	now := time.Now()
	most := c.pace.bound()
	c.begin(now, most)
	if err := c.janitor.ctx.Err(); err != nil || len(c.active)+len(c.queue) == 0 {
		c.running = false
		c.fail(err)
		c.active = nil
		return nil, next, false
	}
	if len(c.active) < most && len(c.queue) > 0 {
		next = c.queue[0].due
	}
	for _, k := range c.active[:min(len(c.active), 2*most)] { // if the server has become slow, the others wait
		if k.again.After(now) {
			next = earlier(next, k.again)
		} else {
			ready = append(ready, k)
		}
	}
	return ready, next, true
}

// begin begins with what is due, as far as not more keys than most are active. The caller holds the janitor's mutex.
func (c *cleaner[T]) begin(now time.Time, most int) {
	for len(c.active) < most && len(c.removals) > 0 {
		c.active = append(c.active, c.removals[0])
		c.removals = c.removals[1:]
	}
	for len(c.active) < most && len(c.queue) > 0 {
		s := c.queue[0]
		if s.due.After(now) && !c.janitor.closed {
			return
		}
		if at := s.earliest(now); at.After(now) {
			s.due = at
			heap.Fix(&c.queue, 0)
			continue
		}
		heap.Pop(&c.queue)
		c.active = append(c.active, &cleaning[T]{records: s.records, slots: s})
	}
}

// sleep waits until a time, or until there is something new.
func (c *cleaner[T]) sleep(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.wake:
	case <-ctx.Done():
	}
}

// finish leaves the keys that are done.
func (c *cleaner[T]) finish() {
	c.active = slices.DeleteFunc(c.active, func(k *cleaning[T]) bool {
		switch {
		case !k.done:
			return false
		case k.slots == nil:
			k.removal.left.Done()
		case !c.janitor.requeue(k):
			c.janitor.table.remove(k.slots)
		}
		return true
	})
}

// fail fails the removals of sweeps. The caller holds the janitor's mutex. It is the goroutine, or there is none.
func (c *cleaner[T]) fail(err error) {
	c.active = slices.DeleteFunc(c.active, func(k *cleaning[T]) bool {
		if k.slots == nil {
			c.removals = append(c.removals, k)
		}
		return k.slots == nil
	})
	for _, k := range c.removals {
		k.removal.err = err
		k.removal.left.Done()
	}
	c.removals = nil
}

// round looks keys up once, and executes the actions that follow. Keys that fit no call together are cleaned at the same
// time.
func (c *cleaner[T]) round(ctx context.Context, ready []*cleaning[T]) error {
	now, err := c.janitor.link.connect(ctx)
	if err != nil {
		return err
	}
	if now != c.conn {
		c.conn = now
		for _, k := range c.active {
			k.history = slot.History{}
		}
	}
	size := max(1, c.janitor.requests/4) // so that the requests of a claim fit one call, too
	errs := make([]error, (len(ready)+size-1)/size)
	var parts sync.WaitGroup
	for i := range errs {
		part := ready[i*size : min(len(ready), (i+1)*size)]
		parts.Go(func() { errs[i] = c.clean(ctx, part) })
	}
	parts.Wait()
	return cmp.Or(errs...)
}

// clean looks keys up in one call, and executes the actions that follow.
func (c *cleaner[T]) clean(ctx context.Context, keys []*cleaning[T]) error {
	if err := c.lookUp(ctx, keys); err != nil {
		return err
	}
	var steps []step[T]
	for _, k := range keys {
		a := k.decide()
		switch a.Kind {
		case slot.Done:
			k.done = true
			k.absent = true
		case slot.Again:
			k.again = a.At
			k.done = time.Until(a.At) > 2*k.records.bands.Guard
		default:
			steps = append(steps, step[T]{key: k, action: a})
		}
	}
	removals, err := c.execute(ctx, steps)
	if err == nil {
		_, err = c.execute(ctx, removals)
	}
	return err
}

// lookUp looks both slots of keys up, in one call.
func (c *cleaner[T]) lookUp(ctx context.Context, keys []*cleaning[T]) error {
	call := c.janitor.link.calls.Get()
	for _, k := range keys {
		if k.slots != nil {
			k.slots.lookedUp()
		}
		k.records.add(call, slot.Request{Verb: slot.Query, Slot: slot.A}, slot.Request{Verb: slot.Query, Slot: slot.B})
	}
	l := slot.Lookup{Sent: time.Now()}
	if _, err := c.janitor.link.do(ctx, c.conn, call); err != nil {
		return err
	}
	l.Received = time.Now()
	c.pace.looked(len(keys), l.Received.Sub(l.Sent), keys[0].records.bands.Guard)
	for i, k := range keys {
		l.Slots = [2]slot.Observation{k.records.observe(call.Responses[2*i]), k.records.observe(call.Responses[2*i+1])}
		k.history = k.records.bands.Extend(k.history, l)
	}
	c.janitor.link.calls.Put(call)
	return nil
}

// step is an action of one key.
type step[T codec.Value] struct {
	key      *cleaning[T]
	action   slot.Action
	requests []slot.Request // of the action, unless it was too late: then the key is looked up again
}

// execute executes actions in one call. It returns the removals of what they have claimed.
func (c *cleaner[T]) execute(ctx context.Context, steps []step[T]) (removals []step[T], err error) {
	call := c.janitor.link.calls.Get()
	var deadline, by time.Time
	for i := range steps {
		s := &steps[i]
		if last := s.key.records.bands.Deadline(s.action); time.Now().Before(last) {
			s.requests = s.key.records.bands.Requests(nil, s.action, 0)
			s.key.records.add(call, s.requests...)
			deadline, by = earlier(deadline, last), earlier(by, s.action.By)
		}
	}
	if by.IsZero() {
		c.janitor.link.calls.Put(call)
		return nil, nil
	}
	sent := time.Now()
	if _, err := c.janitor.link.doBy(ctx, c.conn, call, deadline, by); err != nil {
		if err == errAgain {
			err = nil
		}
		return nil, err
	}
	responses := call.Responses
	for _, s := range steps {
		e := s.key.records.effectsOf(s.action, s.requests, responses[:len(s.requests)])
		responses = responses[len(s.requests):]
		s.key.removed += e.purged
		if s.action.Kind != slot.Claim {
			continue
		}
		if next, ok := s.key.records.bands.Claimed(s.key.history, s.action, e.claimed, e.shown, sent); ok {
			removals = append(removals, step[T]{key: s.key, action: next})
		}
	}
	c.janitor.link.calls.Put(call)
	return removals, nil
}

// earlier returns the earlier of two times, of which a zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// removal is what a call of remove waits for.
type removal struct {
	left sync.WaitGroup // keys
	err  error          // the janitor's mutex guards it until none is left
}

// remove is a [sweep.Remove]. It ends with the ctx of the janitor.
func (j *janitor[T]) remove(_ context.Context, targets []string) (removed int, err error) {
	var all []*cleaning[T]
	var result removal
	for _, t := range targets {
		n, ok := ParseName([]byte(t))
		bands, known := slot.BandsFor(n.Scale, maxValue[T]())
		if !ok || !known {
			return 0, fmt.Errorf("fixedwindow: %q is not a target", t)
		}
		all = append(all, &cleaning[T]{records: records[T]{&bands, n.slotNames()}, removal: &result})
	}
	result.left.Add(len(all))
	j.mu.Lock()
	for _, k := range all {
		c := j.cleaner(k.records.bands.Guard)
		c.removals = append(c.removals, k)
		if !c.start() {
			c.fail(window.ErrClosed)
		}
	}
	j.mu.Unlock()
	result.left.Wait()
	for _, k := range all {
		removed += k.removed
	}
	return removed, result.err
}

// NewRemove returns a [sweep.Remove] for one server that removes what [Inspect] has decided to remove, until ctx ends.
// Close ends its connection.
func NewRemove[T codec.Value](ctx context.Context, s Server[T], calls *conn.CallPool[T],
	maxInFlight int) (remove sweep.Remove, close func()) {
	j := newJanitor(ctx, newLink(s, calls), maxInFlight)
	return j.remove, func() {
		j.close()
		j.link.close()
	}
}
