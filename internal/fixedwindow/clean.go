package fixedwindow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/slot"
)

const (
	// maxClean bounds the keys that are cleaned together. Most of the time they wait.
	maxClean = 1 << 14
	// minBatch is how many keys are always looked up at a time, and maxChunks bounds the calls for that.
	minBatch  = 16
	maxChunks = 64
	// maxRequests bounds the requests of a call. The actions of cleaning have keyRequests at most.
	maxRequests = 256
	keyRequests = 4
)

// cleaning is the way of one key's records to their removal, or to what else is to be done about
// records that are not in use. Many keys are cleaned at a time: they share calls, and they wait
// for their guards together.
type cleaning struct {
	records records
	decide  func(slot.History) slot.Action // called after each lookup
	history slot.History
	lookups int
	again   time.Time // when to look again

	// The results.
	done    bool      // there is nothing more to do now
	next    time.Time // when to clean the records again; zero if there are none
	removed int       // records
}

// clean cleans keys on a link, as far as is possible without waiting for long: those with about the same guard
// together. Requests is the most requests of a call. After an error, some keys are not done.
func clean(ctx context.Context, l *link, requests int, all []*cleaning) error {
	var classes [linkClasses][]*cleaning
	for _, k := range all {
		i := classOf(k.records.bands.Guard)
		classes[i] = append(classes[i], k)
	}
	var errs [linkClasses]error
	var cleaners sync.WaitGroup
	for i, keys := range classes {
		if len(keys) > 0 {
			c := cleaner{link: l, requests: requests, waiting: keys}
			cleaners.Go(func() { errs[i] = c.run(ctx) })
		}
	}
	cleaners.Wait()
	return errors.Join(errs[:]...)
}

// cleaner cleans keys with about the same guard on one link. It looks a batch of them up at a time. Keys whose
// cleaning has begun come first, as soon as they can be looked up again, and others only if there are fewer of these.
// So no more are begun than the server is fast enough for.
type cleaner struct {
	link     *link
	requests int         // the most requests of a call
	conn     *conn.Conn  // of the last lookups
	waiting  []*cleaning // not begun
	begun    []*cleaning // not done; the first one was looked up first
	late     atomic.Bool // the server was too slow in the last round
}

// leaves reports whether the key is done, or has to be tried again later, as others change its records all the time.
func (k *cleaning) leaves() bool { return k.done || k.lookups >= maxLookups }

// chunkSize returns how many keys fit one call.
func (c *cleaner) chunkSize() int { return max(1, c.requests/keyRequests) }

// run cleans the keys until they are done. It learns how many the server can look up in a quarter of a guard: the
// actions that follow have to be written within half of it.
func (c *cleaner) run(ctx context.Context) error {
	failures := 0
	for batch := minBatch; len(c.waiting)+len(c.begun) > 0; {
		ready, again := c.next(batch)
		if len(ready) == 0 {
			if err := outage.Sleep(ctx, time.Until(again)); err != nil {
				return err
			}
			continue
		}
		c.late.Store(false)
		err := c.round(ctx, ready)
		switch {
		case err != nil || c.late.Load():
			batch = max(batch/2, minBatch)
		case len(ready) == batch:
			batch = min(2*batch, maxChunks*c.chunkSize())
		}
		c.begun = append(c.begun, slices.DeleteFunc(ready, (*cleaning).leaves)...)
		if err == nil {
			continue
		}
		if failures++; failures >= maxTries || ctx.Err() != nil {
			return err
		}
		if err := outage.Sleep(ctx, minPause); err != nil {
			return err
		}
	}
	return nil
}

// next removes the keys that are to be looked up now, a batch at most, and returns them. If there are none, it returns
// when there will be.
func (c *cleaner) next(batch int) (ready []*cleaning, again time.Time) {
	now := time.Now()
	c.begun = slices.DeleteFunc(c.begun, func(k *cleaning) bool {
		if k.again.After(now) || len(ready) == batch {
			again = earlier(again, k.again)
			return false
		}
		ready = append(ready, k)
		return true
	})
	n := min(batch-len(ready), len(c.waiting))
	ready = append(ready, c.waiting[:n]...)
	c.waiting = c.waiting[n:]
	return ready, again
}

// round looks keys up once, and executes the actions that follow: for as many keys as fit one call each, at the same
// time.
func (c *cleaner) round(ctx context.Context, ready []*cleaning) error {
	last, err := c.link.connect(ctx)
	if err != nil {
		return err
	}
	if last != c.conn {
		c.conn = last
		for _, k := range slices.Concat(c.begun, ready) {
			k.history = slot.History{}
		}
	}
	var errs []error
	var mu sync.Mutex // guards errs
	var chunks sync.WaitGroup
	for chunk := range slices.Chunk(ready, c.chunkSize()) {
		chunks.Go(func() {
			if err := c.cleanChunk(ctx, chunk); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	chunks.Wait()
	return errors.Join(errs...)
}

// cleanChunk is round for keys that fit one call.
func (c *cleaner) cleanChunk(ctx context.Context, chunk []*cleaning) error {
	if err := c.lookUp(ctx, chunk); err != nil {
		return err
	}
	var steps, removals []step
	for _, k := range chunk {
		a := k.decide(k.history)
		switch a.Kind {
		case slot.Done:
			k.done = true
		case slot.Again:
			k.again = a.At
			if time.Until(a.At) > 2*k.records.bands.Guard {
				k.done, k.next = true, a.At
			}
		default:
			steps = append(steps, step{key: k, action: a})
		}
	}
	if err := c.execute(ctx, steps); err != nil {
		return err
	}
	for i := range steps {
		if next, ok := steps[i].claimed(); ok {
			removals = append(removals, next)
		}
	}
	return c.execute(ctx, removals)
}

// lookUp looks both slots of keys up.
func (c *cleaner) lookUp(ctx context.Context, chunk []*cleaning) error {
	call := c.link.calls.Get()
	for _, k := range chunk {
		k.records.add(call, slot.Request{Verb: slot.Query, Slot: slot.A},
			slot.Request{Verb: slot.Query, Slot: slot.B})
	}
	l := slot.Lookup{Sent: time.Now()}
	if _, err := c.link.do(ctx, c.conn, call); err != nil {
		return err
	}
	l.Received = time.Now()
	if l.Received.Sub(l.Sent) > chunk[0].records.bands.Guard/4 {
		c.late.Store(true)
	}
	for i, k := range chunk {
		l.Slots = [2]slot.Observation{k.records.observe(call.Responses[2*i]),
			k.records.observe(call.Responses[2*i+1])}
		k.history = k.records.bands.Extend(k.history, l)
		k.lookups++
	}
	c.link.calls.Put(call)
	return nil
}

// step is an action of one key.
type step struct {
	key      *cleaning
	action   slot.Action
	requests []slot.Request
	effects  effects // zero if it was not executed
}

// claimed returns the removal of the slots that a step has claimed. It returns false if there are none.
func (s *step) claimed() (next step, ok bool) {
	if s.action.Kind != slot.Claim {
		return next, false
	}
	a, ok := s.key.records.bands.Claimed(s.key.history, s.action, s.effects.claimed, s.effects.shown, s.effects.at.from)
	return step{key: s.key, action: a}, ok
}

// execute executes actions in one call. Those that are too late are left out: their keys are looked up again.
func (c *cleaner) execute(ctx context.Context, steps []step) error {
	call := c.link.calls.Get()
	var deadline, by time.Time
	for i := range steps {
		s := &steps[i]
		last := s.key.records.bands.Deadline(s.action)
		if !time.Now().Before(last) {
			c.late.Store(true)
			continue
		}
		s.requests = s.key.records.bands.Requests(nil, s.action, 0)
		s.key.records.add(call, s.requests...)
		deadline, by = earlier(deadline, last), earlier(by, s.action.By)
	}
	if by.IsZero() {
		c.link.calls.Put(call)
		return nil
	}
	sent := time.Now()
	switch _, err := c.link.doBy(ctx, c.conn, call, deadline, by); {
	case err == errAgain:
		c.late.Store(true)
		return nil
	case err != nil:
		return err
	}
	responses := call.Responses
	for i := range steps {
		s := &steps[i]
		s.effects = s.key.records.effectsOf(s.action, s.requests, responses[:len(s.requests)])
		s.effects.at.from = sent
		s.key.removed += s.effects.purged
		responses = responses[len(s.requests):]
	}
	c.link.calls.Put(call)
	return nil
}

// earlier returns the earlier of two times, of which a zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Remover removes the records of one server that Inspect has decided to remove. Those of slots
// take several lookups and actions, which go out on a link.
type Remover struct {
	link     *link
	requests int // the most requests of a call
}

// NewRemover returns a Remover. Close it after use.
func NewRemover(s Server, calls *conn.Calls, maxInFlight int) *Remover {
	return &Remover{link: newLink(s, calls), requests: max(1, min(maxRequests, maxInFlight))}
}

// Remove is a [sweep.Remove].
func (r *Remover) Remove(ctx context.Context, targets []string) (removed int, err error) {
	for some := range slices.Chunk(targets, maxClean) {
		cleanings := make([]*cleaning, len(some))
		for i, target := range some {
			n, bands, ok := r.parse([]byte(target))
			if !ok {
				return removed, fmt.Errorf("fixedwindow: %q is not a target", target)
			}
			cleanings[i] = &cleaning{records: records{&bands, n.slotNames()}}
			cleanings[i].decide = func(h slot.History) slot.Action { return bands.Clean(h, bands.Watch) }
		}
		err = errors.Join(err, clean(ctx, r.link, r.requests, cleanings))
		for _, k := range cleanings {
			removed += k.removed
		}
	}
	return removed, err
}

// Close ends the connection.
func (r *Remover) Close() { r.link.close() }
