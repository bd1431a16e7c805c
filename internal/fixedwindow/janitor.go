package fixedwindow

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/window"
)

const (
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
type janitor struct {
	backend *Backend
	ctx     context.Context // ends with the backend
	link    *link
	max     int            // keys with records to remove
	wake    chan struct{}  // has an element if the first duty of the queue is a new one
	done    chan struct{}  // closed when run has ended
	sweeper *sweep.Sweeper // nil if there is none; set before the first call of the backend

	// mu guards the fields below, and those of slots that say so.
	mu      sync.Mutex
	duties  int       // in the queue, or being done
	queue   dutyQueue // those in the queue
	closed  bool      // what remains is to remove the records that are not in use
	closeBy time.Time // windows that end later stay then
}

// duty is what the janitor has to do for a count. The mutex of the janitor guards it.
type duty struct {
	owed  bool      // there may be records to remove
	due   time.Time // when to look whether that can be done: see earliest
	index int       // in the queue; -1 if it is being done

	underway int       // actions that may make records and whose outcome is awaited
	acted    time.Time // when the last of them was executed, at the latest
	cleanAt  time.Time // when to clean the records, at the earliest
}

func newJanitor(b *Backend, l *link, max int) *janitor {
	return &janitor{
		backend: b, ctx: b.group.ctx, link: l, max: max,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// owes reports whether there may be records of s to remove.
func (j *janitor) owes(s *slots) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return s.owed
}

// pending returns the number of keys with records that are yet to be removed.
func (j *janitor) pending() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.duties
}

// actionBegins is called before an action that may make records or change their TTLs. It returns
// window.ErrFull if there are too many keys with records.
func (j *janitor) actionBegins(s *slots) error {
	j.mu.Lock()
	owed := s.owed
	err := j.add(s, time.Now().Add(s.idle()))
	if err == nil {
		s.underway++
	}
	j.mu.Unlock()
	if err == nil && !owed {
		j.backend.table.add(s) // it may have been evicted
	}
	return err
}

// actionEnds is called after an action that actionBegins was called for, once it has been executed. Opened
// says that it has opened a window, and so has set the TTLs of all records.
func (j *janitor) actionEnds(s *slots, opened bool) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	s.underway--
	s.acted = now
	if opened {
		s.cleanAt = now.Add(s.idle())
	} else {
		j.schedule(s, now.Add(s.bands.Guard))
	}
}

// cleanSoon has the records of a key cleaned as soon as possible.
func (j *janitor) cleanSoon(s *slots) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.add(s, time.Now()) != nil {
		return // there are too many; another client does it
	}
	j.schedule(s, time.Now())
}

// schedule has the records of a key, which is a duty, cleaned at a time at the latest. The caller
// holds mu.
func (j *janitor) schedule(s *slots, at time.Time) {
	if at.Before(s.cleanAt) {
		s.cleanAt = at
	}
	if s.index >= 0 && at.Before(s.due) {
		s.due = at
		heap.Fix(&j.queue, s.index)
		j.notify(s)
	}
}

// add queues what has to be done for s at a time, unless there is something already. The caller holds mu.
func (j *janitor) add(s *slots, due time.Time) error {
	if s.owed {
		return nil
	}
	if j.duties >= j.max {
		return fmt.Errorf("%w: the records of %d are yet to be removed", window.ErrFull, j.duties)
	}
	j.duties++
	s.owed = true
	if j.sweeper != nil {
		j.sweeper.Need(sweepInterval(s.bands))
	}
	j.push(s, due)
	return nil
}

// push queues s. The caller holds mu.
func (j *janitor) push(s *slots, due time.Time) {
	s.due = due
	heap.Push(&j.queue, s)
	j.notify(s)
}

// notify wakes run if s is the first of the queue. The caller holds mu.
func (j *janitor) notify(s *slots) {
	if s.index != 0 {
		return
	}
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run does what is due, until the janitor is closed and has done all, or until the backend ends.
func (j *janitor) run() {
	defer close(j.done)
	timer := time.NewTimer(maxIdle)
	defer timer.Stop()
	for j.ctx.Err() == nil {
		due, wait, all := j.due()
		switch {
		case len(due) > 0:
			j.do(due)
			continue
		case all:
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-j.wake:
		case <-j.ctx.Done():
		}
	}
}

// due removes what is due from the queue, maxClean keys at most, and returns it. It also returns how long
// to wait for the others, and whether there will be none because the janitor is closed.
func (j *janitor) due() (due []*slots, wait time.Duration, all bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	for len(due) < maxClean && len(j.queue) > 0 && !j.queue[0].due.After(now) {
		if at := j.queue[0].earliest(now); at.After(now) {
			j.queue[0].due = at
			heap.Fix(&j.queue, 0)
			continue
		}
		due = append(due, heap.Pop(&j.queue).(*slots))
	}
	if len(j.queue) == 0 {
		return due, maxIdle, j.closed
	}
	return due, min(max(j.queue[0].due.Sub(now), 0), maxIdle), false
}

// earliest returns when the duty can be done. The caller holds mu.
func (s *slots) earliest(now time.Time) time.Time {
	switch {
	case s.underway > 0:
		return now.Add(s.bands.Guard)
	case s.janitor.closed:
		return s.due
	default:
		return s.cleanAt
	}
}

// do does duties, and queues again what is to be done later.
func (j *janitor) do(due []*slots) {
	cleanings := make([]*cleaning, len(due))
	for i, s := range due {
		cleanings[i] = &cleaning{records: s.records, decide: s.cleanAction}
	}
	clean(j.ctx, j.link, j.backend.maxRequests, cleanings) // what fails is done again later
	for i, k := range cleanings {
		if !j.requeue(due[i], k) {
			j.backend.table.remove(due[i])
		}
	}
}

// cleanAction decides what cleaning the records does. When the backend closes, all are removed that are not in
// use, except for those of a key whose last window another client has opened.
func (s *slots) cleanAction(h slot.History) slot.Action {
	s.janitor.mu.Lock()
	below := s.bands.Below(h.Last, s.acted)
	changed := s.changed(h.Last.Sent)
	closed := s.janitor.closed
	closeBy := s.janitor.closeBy
	s.janitor.mu.Unlock()
	k := s.current()
	switch {
	case changed:
		return slot.Action{Kind: slot.Again, At: time.Now().Add(s.idle())} // requeue knows better
	case closed && below == s.bands.Watch:
		return slot.Action{Kind: slot.Done}
	case closed && k.maybeOpen(time.Now()) && !k.Latest.After(closeBy):
		return slot.Action{Kind: slot.Again, At: k.Latest}
	case closed:
		return s.bands.Discard(h)
	}
	return s.bands.Clean(h, below)
}

// changed reports whether this backend may have changed the records since a time. The caller holds the janitor's mutex.
func (d *duty) changed(since time.Time) bool { return d.underway > 0 || !d.acted.Before(since) }

// idle returns how long after an action that sets TTLs a record can have to be removed.
func (s *slots) idle() time.Duration {
	return time.Duration(s.bands.Margin-s.bands.Doom) * s.bands.Unit
}

// requeue queues a duty again, or drops it and returns false.
func (j *janitor) requeue(s *slots, k *cleaning) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := time.Now().Add(cleanRetry)
	changed := s.changed(k.history.Last.Sent)
	switch {
	case changed && !j.closed && s.cleanAt.After(at):
		at = s.cleanAt
	case !changed && k.done:
		at = k.next
		s.cleanAt = at
	}
	if at.IsZero() || j.closed && at.After(j.closeBy) {
		s.owed = false
		j.duties--
		return false
	}
	j.push(s, at)
	return true
}

// close removes the records that are not in use. It is called when the backend is closed, with what
// is under way still going on. On a server that is not parked, records expire: so it waits for windows that end
// soon. The records of open windows are left to others, which may count in them.
func (j *janitor) close() {
	j.mu.Lock()
	j.closed = true
	j.closeBy = time.Now()
	for _, s := range j.queue {
		s.due = j.closeBy
	}
	if !j.link.server.Parked() {
		j.closeBy = j.closeBy.Add(closeWait)
	}
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
	<-j.done
}

// dutyQueue is a heap of slots with duties. The one to do first comes first.
type dutyQueue []*slots

// Len implements [heap.Interface], as the methods below do.
func (q dutyQueue) Len() int { return len(q) }

// Less orders duties by when they are due.
func (q dutyQueue) Less(i, k int) bool { return q[i].due.Before(q[k].due) }

// Swap swaps two duties.
func (q dutyQueue) Swap(i, k int) {
	q[i], q[k] = q[k], q[i]
	q[i].index, q[k].index = i, k
}

// Push appends a duty.
func (q *dutyQueue) Push(x any) {
	s := x.(*slots)
	s.index = len(*q)
	*q = append(*q, s)
}

// Pop removes the last duty.
func (q *dutyQueue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	s.index = -1
	return s
}
