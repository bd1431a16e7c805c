package fixedwindow

import (
	"container/heap"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/window"
)

const (
	// chunkSize is how many keys a chunk has, which are cleaned together.
	chunkSize = 256
	// maxChunks is how many chunks are cleaned at a time. Most of the time they wait.
	maxChunks = 64
	// cleanRetry is how long keys wait that could not be cleaned.
	cleanRetry = 250 * time.Millisecond
)

// janitor removes the records that the backend has made on one server, when they are not in use
// any more. None of them may expire there, because that can lock the server up for good (H12).
//
// Each server has a janitor of its own, so that a server that does not respond delays no other.
type janitor struct {
	backend *Backend
	link    *link
	max     int            // keys with records to remove
	wake    chan struct{}  // has an element if the first duty of the queue is a new one
	permits chan struct{}  // has an element for each chunk that is being cleaned
	chunks  sync.WaitGroup // those that due has returned and that are not done
	sweeper *sweep.Sweeper // of the server

	// mu guards the fields below, and the duties of counts.
	mu     sync.Mutex
	duties int       // in the queue, or being done
	queue  dutyQueue // those in the queue
	closed bool      // close does what is in the queue
}

// duty is what the janitor has to do for a count. The mutex of the janitor guards it.
type duty struct {
	owed  bool      // there may be records to remove
	due   time.Time // when to clean the records, at the earliest
	index int       // in the queue; -1 if it is being done

	underway int       // actions that may make records and whose outcome is awaited
	acted    time.Time // when the last of them was executed, at the latest
}

func newJanitor(b *Backend, l *link, max int) *janitor {
	remover := &Remover{link: l}
	sweeper := sweep.New(sweep.Options{
		Server: l.server, Inspect: remover.Inspect, Remove: remover.Remove, Calls: l.calls,
		MaxInFlight: b.MaxInFlight, MaxQueued: b.MaxQueued,
	})
	return &janitor{
		backend: b, link: l, sweeper: sweeper, max: max,
		wake: make(chan struct{}, 1), permits: make(chan struct{}, maxChunks),
	}
}

// owes reports whether there may be records of s to remove.
func (j *janitor) owes(s *countState) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return s.duty.owed
}

// pending returns the number of keys with records that are yet to be removed.
func (j *janitor) pending() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.duties
}

// actionBegins is called before an action that may make records or change their TTLs. It returns
// window.ErrFull if there are too many keys with records.
func (j *janitor) actionBegins(s *countState) error {
	j.mu.Lock()
	err := j.add(s, time.Now().Add(s.idle()))
	if err == nil {
		s.duty.underway++
	}
	j.mu.Unlock()
	if err == nil {
		j.backend.table.add(s) // it may have been evicted
	}
	return err
}

// actionEnds is called after an action that actionBegins was called for, once it has been executed. Opened
// says that it has opened a window, and so has set the TTLs of all records.
func (j *janitor) actionEnds(s *countState, opened bool) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	s.duty.underway--
	s.duty.acted = now
	if opened {
		j.schedule(s, now.Add(s.idle()))
	} else {
		j.schedule(s, earlier(s.duty.due, now.Add(s.bands.Guard)))
	}
}

// cleanSoon has the records of a key cleaned as soon as possible.
func (j *janitor) cleanSoon(s *countState) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.add(s, time.Now()) == nil { // otherwise there are too many; another client does it
		j.schedule(s, time.Now())
	}
}

// schedule has the records of a key, which is a duty, cleaned at a time. The caller holds mu.
func (j *janitor) schedule(s *countState, due time.Time) {
	s.duty.due = due
	if s.duty.index >= 0 {
		heap.Fix(&j.queue, s.duty.index)
		j.notify(s)
	}
}

// add queues what has to be done for s at a time, unless there is something already. The caller holds mu.
func (j *janitor) add(s *countState, due time.Time) error {
	if s.duty.owed {
		return nil
	}
	if j.duties >= j.max {
		return fmt.Errorf("%w: the records of %d are yet to be removed", window.ErrFull, j.duties)
	}
	j.duties++
	s.duty.owed = true
	j.sweeper.Need(sweepInterval(s.bands))
	j.push(s, due)
	return nil
}

// push queues s. The caller holds mu.
func (j *janitor) push(s *countState, due time.Time) {
	s.duty.due = due
	heap.Push(&j.queue, s)
	j.notify(s)
}

// notify wakes run if s is the first of the queue. The caller holds mu.
func (j *janitor) notify(s *countState) {
	if s.duty.index != 0 {
		return
	}
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run does what is due, until the backend ends.
func (j *janitor) run() {
	for {
		select {
		case j.permits <- struct{}{}:
		case <-j.backend.group.ctx.Done():
			return
		}
		chunk, next := j.due()
		if len(chunk) > 0 {
			go func() {
				defer j.chunks.Done()
				defer func() { <-j.permits }()
				j.do(chunk)
			}()
			continue
		}
		<-j.permits
		if outage.SleepUntil(j.backend.group.ctx, next, j.wake) != nil {
			return
		}
	}
}

// due removes what is due from the queue, a chunk at most, and returns it, which close waits for. It also returns when
// the first of the others is due, or the zero time if there are none.
//
// A key whose own action is under way is due later: the janitor can't act on what a lookup of it shows, and lookups
// take time from the keys that can be cleaned.
func (j *janitor) due() (chunk []*countState, next time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	if j.closed {
		return nil, next
	}
	for len(chunk) < chunkSize && len(j.queue) > 0 && !j.queue[0].duty.due.After(now) {
		if s := j.queue[0]; s.duty.underway > 0 {
			j.schedule(s, now.Add(s.bands.Guard))
			continue
		}
		chunk = append(chunk, heap.Pop(&j.queue).(*countState))
	}
	if len(chunk) > 0 {
		j.chunks.Add(1)
	}
	if len(j.queue) == 0 {
		return chunk, next
	}
	return chunk, j.queue[0].duty.due
}

// do does a chunk of duties, and queues again what is to be done later.
func (j *janitor) do(chunk []*countState) {
	cleanings := make([]*cleaning, len(chunk))
	for i, s := range chunk {
		cleanings[i] = &cleaning{records: s.records, decide: s.cleanAction}
	}
	clean(j.backend.group.ctx, j.link, cleanings) // what fails is done again later
	for i, k := range cleanings {
		if !j.requeue(chunk[i], k) {
			j.backend.table.remove(chunk[i])
		}
	}
}

// cleanAction decides what cleaning the records does. When the backend closes, all are removed that are not in
// use, except for those of a key whose last window another client has opened.
func (s *countState) cleanAction(h slot.History) slot.Action {
	s.janitor.mu.Lock()
	below := s.bands.Below(h.Last, s.duty.acted)
	closed := s.janitor.closed
	s.janitor.mu.Unlock()
	switch {
	case closed && below == s.bands.Watch:
		return slot.Action{Kind: slot.Done}
	case closed:
		return s.bands.Discard(h)
	}
	return s.bands.Clean(h, below)
}

// changed reports whether this backend may have changed the records since a lookup. The caller holds the janitor's
// mutex.
func (d *duty) changed(since slot.Lookup) bool { return d.underway > 0 || !d.acted.Before(since.Sent) }

// idle returns how long after an action that sets TTLs a record can have to be removed.
func (s *countState) idle() time.Duration {
	return time.Duration(s.bands.Margin-s.bands.Doom) * s.bands.Unit
}

// requeue queues a duty again after its records were cleaned, or drops it and returns false, if there are no records any
// more.
func (j *janitor) requeue(s *countState, k *cleaning) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch retry := time.Now().Add(cleanRetry); {
	case !k.done || s.duty.changed(k.history.Last):
		if retry.After(s.duty.due) {
			s.duty.due = retry
		}
		j.push(s, s.duty.due)
	case k.next.IsZero():
		s.duty.owed = false
		j.duties--
		return false
	default:
		j.push(s, k.next)
	}
	return true
}

// last returns the latest end of a window before a time, for all clients, of those that this backend has opened.
func (j *janitor) last(before time.Time) (end time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.queue {
		if k := s.current(); k.ok && !k.Latest.After(before) && k.Latest.After(end) {
			end = k.Latest
		}
	}
	return end
}

// close removes the records that are not in use. It is called when the backend is closed, with what
// is under way still going on. The records of open windows are left to others, which may count
// in them.
func (j *janitor) close() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.discard()
	j.chunks.Wait()
	j.discard() // what those chunks have queued again
}

// discard removes the records in the queue that are not in use.
func (j *janitor) discard() {
	j.mu.Lock()
	all := j.queue
	j.queue = nil
	for _, s := range all {
		s.duty.index = -1
	}
	j.mu.Unlock()
	var chunks sync.WaitGroup
	for chunk := range slices.Chunk(all, chunkSize) {
		chunks.Go(func() { j.do(chunk) })
		if len(chunk) == chunkSize && outage.Sleep(j.backend.group.ctx, time.Millisecond) != nil {
			break
		}
	}
	chunks.Wait()
}

// dutyQueue is a heap of counts with duties. The one to do first comes first.
type dutyQueue []*countState

// Len implements [heap.Interface], as the methods below do.
func (q dutyQueue) Len() int { return len(q) }

// Less orders duties by when they are due.
func (q dutyQueue) Less(i, k int) bool { return q[i].duty.due.Before(q[k].duty.due) }

// Swap swaps two duties.
func (q dutyQueue) Swap(i, k int) {
	q[i], q[k] = q[k], q[i]
	q[i].duty.index, q[k].duty.index = i, k
}

// Push appends a duty.
func (q *dutyQueue) Push(x any) {
	s := x.(*countState)
	s.duty.index = len(*q)
	*q = append(*q, s)
}

// Pop removes the last duty.
func (q *dutyQueue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	s.duty.index = -1
	return s
}
