package fixedwindow

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/window"
)

const (
	// chunkSize is how many keys a chunk has, which are cleaned together, and how many requests a call has for it.
	chunkSize = 256
	// maxChunks is how many chunks are cleaned at a time. Most of the time they wait.
	maxChunks = 64
	// cleanRetry is how long keys wait that could not be cleaned.
	cleanRetry = 250 * time.Millisecond
	// maxIdle bounds how long a janitor sleeps: the backend's clock need not be the one that
	// timers go by.
	maxIdle = time.Second
)

// janitor removes the records that the backend has made on one server, when they are not in use
// any more. None of them may expire there, because that can lock the server up for good (H12).
//
// Each server has a janitor of its own, so that a server that does not respond delays no other.
type janitor[T codec.Value] struct {
	backend *Backend[T]
	ctx     context.Context // ends with the backend
	link    *link[T]
	max     int               // keys with records to remove
	wake    chan struct{}     // has an element if the first duty of the queue is a new one
	permits chan struct{}     // has an element for each chunk that is being cleaned
	chunks  sync.WaitGroup    // those that due has returned and that are not done
	sweeper *sweep.Sweeper[T] // nil if there is none; set before the first call of the backend

	// mu guards the fields below, and those of slots that say so.
	mu      sync.Mutex
	duties  int                    // in the queue, or being done
	queue   dutyQueue[T]           // those in the queue
	entries map[entryKey]*entry[T] // those with duties, even if the table has evicted them
	closed  bool                   // close does what is in the queue
}

// duty is a key whose records are to be removed.
type duty[T codec.Value] struct {
	due     time.Time // when to look whether it can be done: see earliest
	index   int       // in the queue; -1 if it is being done
	slots   *slots[T]
	changes uint64 // of slots, as of the last lookup
}

func newJanitor[T codec.Value](b *Backend[T], l *link[T], max int) *janitor[T] {
	return &janitor[T]{
		backend: b, ctx: b.group.Context(), link: l, max: max,
		wake: make(chan struct{}, 1), permits: make(chan struct{}, maxChunks),
		entries: make(map[entryKey]*entry[T]),
	}
}

// entryOf returns the entry of k if it has a duty, or nil.
func (j *janitor[T]) entryOf(k entryKey) *entry[T] {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.entries[k]
}

// pending returns the number of keys with records that are yet to be removed.
func (j *janitor[T]) pending() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.duties
}

// actionBegins is called before an action that may make records or change their TTLs. It returns
// window.ErrFull if there are too many keys with records.
func (j *janitor[T]) actionBegins(s *slots[T]) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s.duty == nil {
		if err := j.add(&duty[T]{slots: s, due: time.Now().Add(s.idle())}); err != nil {
			return err
		}
	}
	s.underway++
	s.changes++
	return nil
}

// actionEnds is called after an action that actionBegins was called for, once it has been executed. Opened
// says that it has opened a window, and so has set the TTLs of all records.
func (j *janitor[T]) actionEnds(s *slots[T], opened bool) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	s.underway--
	s.changes++
	s.acted = now
	if opened {
		s.cleanAt = now.Add(s.idle())
	} else {
		j.schedule(s, now.Add(s.bands.Guard))
	}
}

// cleanSoon has the records of a key cleaned as soon as possible.
func (j *janitor[T]) cleanSoon(s *slots[T]) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s.duty == nil && j.add(&duty[T]{slots: s, due: time.Now()}) != nil {
		return // there are too many; another client does it
	}
	j.schedule(s, time.Now())
}

// schedule has the records of a key, which is a duty, cleaned at a time at the latest. The caller
// holds mu.
func (j *janitor[T]) schedule(s *slots[T], at time.Time) {
	if at.Before(s.cleanAt) {
		s.cleanAt = at
	}
	if d := s.duty; d.index >= 0 && at.Before(d.due) {
		d.due = at
		heap.Fix(&j.queue, d.index)
		j.notify(d)
	}
}

// add adds a duty. The caller holds mu.
func (j *janitor[T]) add(d *duty[T]) error {
	if j.duties >= j.max {
		return fmt.Errorf("%w: the records of %d are yet to be removed", window.ErrFull, j.duties)
	}
	j.duties++
	d.slots.duty = d
	e := d.slots.entry
	if j.sweeper != nil {
		j.sweeper.Need(e.sweepEvery)
	}
	e.duties++
	if j.entries[e.entryKey] == nil {
		j.entries[e.entryKey] = e
	}
	j.push(d)
	return nil
}

// drop drops a duty that is done. The caller holds mu.
func (j *janitor[T]) drop(d *duty[T]) {
	j.duties--
	e := d.slots.entry
	e.duties--
	if e.duties == 0 && j.entries[e.entryKey] == e {
		delete(j.entries, e.entryKey)
	}
}

// push queues a duty. The caller holds mu.
func (j *janitor[T]) push(d *duty[T]) {
	heap.Push(&j.queue, d)
	j.notify(d)
}

// notify wakes run if d is the first of the queue. The caller holds mu.
func (j *janitor[T]) notify(d *duty[T]) {
	if d.index != 0 {
		return
	}
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run does what is due, until the backend ends.
func (j *janitor[T]) run() {
	timer := time.NewTimer(maxIdle)
	defer timer.Stop()
	for {
		chunk, wait := j.due()
		if len(chunk) > 0 {
			if !j.start(chunk) {
				return
			}
			continue
		}
		tick := timer.C
		if wait < 0 {
			tick = nil
		} else {
			timer.Reset(wait)
		}
		select {
		case <-tick:
		case <-j.wake:
		case <-j.ctx.Done():
			return
		}
	}
}

// start does a chunk that due has returned, in a goroutine. If the backend has been closed, it
// queues the chunk again and returns false.
func (j *janitor[T]) start(chunk []*duty[T]) bool {
	select {
	case j.permits <- struct{}{}:
		if j.backend.group.Go(func() {
			defer j.chunks.Done()
			defer func() { <-j.permits }()
			j.do(chunk, (*slots[T]).cleanAction)
		}) {
			return true
		}
	case <-j.ctx.Done():
	}
	defer j.chunks.Done()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range chunk {
		j.push(d)
	}
	return false
}

// due removes what is due from the queue, a chunk at most, and returns it. It also returns how long
// to wait for the first of the others, or less than 0 if there are none.
func (j *janitor[T]) due() (chunk []*duty[T], wait time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	if j.closed {
		return nil, -1
	}
	for len(chunk) < chunkSize && len(j.queue) > 0 && !j.queue[0].due.After(now) {
		d := j.queue[0]
		if due := d.earliest(now); due.After(now) {
			d.due = due
			heap.Fix(&j.queue, 0)
			continue
		}
		chunk = append(chunk, heap.Pop(&j.queue).(*duty[T]))
	}
	if len(chunk) > 0 {
		j.chunks.Add(1)
	}
	if len(j.queue) == 0 {
		return chunk, -1
	}
	return chunk, min(max(j.queue[0].due.Sub(now), 0), maxIdle)
}

// earliest returns when a duty can be done. The caller holds mu.
func (d *duty[T]) earliest(now time.Time) time.Time {
	if s := d.slots; s.underway > 0 {
		return now.Add(s.bands.Guard)
	}
	return d.slots.cleanAt
}

// do does a chunk of duties, and queues again what is to be done later. Decide decides about the slots of one.
func (j *janitor[T]) do(chunk []*duty[T], decide func(*slots[T], slot.History) slot.Action) {
	var cleanings []*cleaning[T]
	for _, d := range chunk {
		s := d.slots
		cleanings = append(cleanings, &cleaning[T]{
			records: s.records,
			begin: func() {
				j.mu.Lock()
				d.changes = s.changes
				j.mu.Unlock()
			},
			decide: func(h slot.History) slot.Action { return decide(s, h) },
		})
	}
	c := cleaner[T]{link: j.link, requests: j.backend.maxRequests}
	c.clean(j.ctx, cleanings) // what fails is done again later
	for i, k := range cleanings {
		j.finish(chunk[i], k)
	}
}

// cleanAction decides what cleaning the records does.
func (s *slots[T]) cleanAction(h slot.History) slot.Action {
	s.janitor.mu.Lock()
	acted := s.acted
	changed := s.changed()
	closed := s.janitor.closed
	s.janitor.mu.Unlock()
	switch {
	case changed:
		return slot.Action{Kind: slot.Again, At: time.Now().Add(s.idle())} // finish knows better
	case closed:
		return s.discardAction(h)
	}
	return s.bands.Clean(h, s.bands.Below(h.Last, acted))
}

// changed reports whether this backend may have changed the records since their last lookup by the
// janitor. The caller holds the janitor's mutex.
func (s *slots[T]) changed() bool { return s.underway > 0 || s.changes != s.duty.changes }

// discardAction decides how the records are removed that are not in use when the backend closes.
// Those of a key are left to the client that has opened its last window.
func (s *slots[T]) discardAction(h slot.History) slot.Action {
	s.janitor.mu.Lock()
	acted := s.acted
	s.janitor.mu.Unlock()
	if s.bands.Below(h.Last, acted) == s.bands.Watch {
		return slot.Action{Kind: slot.Done}
	}
	return s.bands.Discard(h)
}

// idle returns how long after an action that sets TTLs a record can have to be removed.
func (s *slots[T]) idle() time.Duration {
	return time.Duration(s.bands.Margin-s.bands.Doom) * s.bands.Unit
}

// finish queues a duty again after its records were cleaned, or drops it if there are no records
// any more.
func (j *janitor[T]) finish(d *duty[T], k *cleaning[T]) {
	s := d.slots
	j.mu.Lock()
	changed := s.changed()
	if k.absent && !changed {
		s.duty = nil
		j.drop(d)
		j.mu.Unlock()
		j.backend.table.remove(s.entry)
		return
	}
	defer j.mu.Unlock()
	switch {
	case changed:
		d.due = s.cleanAt
	case !k.done:
		d.due = time.Now().Add(cleanRetry)
	default:
		d.due, s.cleanAt = k.next, k.next
	}
	j.push(d)
}

// last returns the latest end of a window before a time, of those that this backend has opened.
func (j *janitor[T]) last(before time.Time) (end time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range j.queue {
		if over := d.over(); !over.After(before) && over.After(end) {
			end = over
		}
	}
	return end
}

// over returns when a window is over for all clients. It returns the zero
// time if none is known.
func (d *duty[T]) over() time.Time {
	if w, ok := d.slots.known.current(); ok {
		return w.Latest
	}
	return time.Time{}
}

// close removes the records that are not in use. It is called when the backend is closed, with what
// is under way still going on. The records of open windows are left to others, which may count
// in them.
func (j *janitor[T]) close() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.discard()
	j.chunks.Wait()
	j.discard() // what those chunks have queued again
}

// discard removes the records in the queue that are not in use.
func (j *janitor[T]) discard() {
	j.mu.Lock()
	all := j.queue
	j.queue = nil
	for _, d := range all {
		d.index = -1
	}
	j.mu.Unlock()
	var chunks sync.WaitGroup
	for len(all) > 0 && j.ctx.Err() == nil {
		chunk := all[:min(len(all), chunkSize)]
		all = all[len(chunk):]
		chunks.Go(func() { j.do(chunk, (*slots[T]).discardAction) })
		if len(all) > 0 && backoff.Sleep(j.ctx, time.Millisecond) != nil {
			break
		}
	}
	chunks.Wait()
}

// dutyQueue is a heap of duties. The one to do first comes first.
type dutyQueue[T codec.Value] []*duty[T]

// Len implements [heap.Interface], as the methods below do.
func (q dutyQueue[T]) Len() int { return len(q) }

// Less orders duties by when they are due.
func (q dutyQueue[T]) Less(i, k int) bool { return q[i].due.Before(q[k].due) }

// Swap swaps two duties.
func (q dutyQueue[T]) Swap(i, k int) {
	q[i], q[k] = q[k], q[i]
	q[i].index, q[k].index = i, k
}

// Push appends a duty.
func (q *dutyQueue[T]) Push(x any) {
	d := x.(*duty[T])
	d.index = len(*q)
	*q = append(*q, d)
}

// Pop removes the last duty.
func (q *dutyQueue[T]) Pop() any {
	last := len(*q) - 1
	d := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	d.index = -1
	return d
}
