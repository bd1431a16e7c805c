package fixedwindow

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/window"
)

// janitor removes the records on one server that are not in use any more: those that the backend has made, and those
// that sweeps find. None of them may expire there, because that can lock the server up for good (H12).
//
// Each server has a janitor of its own, so that a server that does not respond delays no other.
type janitor[T codec.Value] struct {
	ctx      context.Context // ends with the backend, or with a sweep by the user
	link     *link[T]
	requests int               // the most of a call
	table    *table[T]         // of the backend
	max      int               // keys with records to remove
	sweeper  *sweep.Sweeper[T] // nil if there is none; set before the first call of the backend

	cleaners [linkClasses]cleaner[T] // by the classes of guards
	running  sync.WaitGroup          // goroutines of the cleaners

	// mu guards the fields below, and those of cleaners and slots that say so.
	mu     sync.Mutex
	duties int  // keys with records to remove
	closed bool // what is not in use is removed now
}

// duty is what the janitor has to do for a count. The mutex of the janitor guards it.
type duty struct {
	owed  bool      // there may be records to remove
	due   time.Time // when to look whether that can be done: see earliest
	index int       // in the queue of the cleaner; -1 if it is being done

	underway int       // actions that may make records and whose outcome is awaited
	changes  uint64    // counts the beginnings and ends of such actions
	seen     uint64    // changes as of the janitor's last lookup
	acted    time.Time // when the last of them was executed, at the latest
	cleanAt  time.Time // when to clean the records, at the earliest
}

// newJanitor returns a janitor whose calls have so many requests at most, and fewer than would delay others.
func newJanitor[T codec.Value](ctx context.Context, l *link[T], requests int) *janitor[T] {
	j := &janitor[T]{ctx: ctx, link: l, requests: max(1, min(maxRequests, requests))}
	for i := range j.cleaners {
		c := &j.cleaners[i]
		c.janitor = j
		c.pace.most = minPace
		c.wake = make(chan struct{}, 1)
	}
	return j
}

// cleaner returns the cleaner of keys with a guard.
func (j *janitor[T]) cleaner(guard time.Duration) *cleaner[T] { return &j.cleaners[classOf(guard)] }

// owes reports whether there may be records of s to remove.
func (j *janitor[T]) owes(s *slots[T]) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return s.owed
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
	owed := s.owed
	err := j.add(s, time.Now().Add(s.idle()))
	if err == nil {
		s.underway++
		s.changes++
	}
	j.mu.Unlock()
	if err == nil && !owed {
		j.table.add(s) // it may have been evicted
	}
	return err
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
	if j.add(s, time.Now()) != nil {
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
	if s.index >= 0 && at.Before(s.due) {
		c := j.cleaner(s.bands.Guard)
		s.due = at
		heap.Fix(&c.queue, s.index)
		c.notify(s)
	}
}

// add queues what has to be done for s at a time, unless there is something already. The caller holds mu.
func (j *janitor[T]) add(s *slots[T], due time.Time) error {
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
	j.cleaner(s.bands.Guard).push(s, due)
	return nil
}

// earliest returns when the duty can be done. The caller holds the janitor's mutex.
func (s *slots[T]) earliest(now time.Time) time.Time {
	switch {
	case s.janitor.closed:
		return now
	case s.underway > 0:
		return now.Add(s.bands.Guard)
	}
	return s.cleanAt
}

// lookedUp is called before the janitor looks the slots up.
func (s *slots[T]) lookedUp() {
	s.janitor.mu.Lock()
	s.seen = s.changes
	s.janitor.mu.Unlock()
}

// cleanAction decides what cleaning the records does. When the backend closes, all are removed that are not in
// use, except for those of a key whose last window another client has opened.
func (s *slots[T]) cleanAction(h slot.History) slot.Action {
	s.janitor.mu.Lock()
	below := s.bands.Below(h.Last, s.acted)
	changed := s.changed()
	closed := s.janitor.closed
	s.janitor.mu.Unlock()
	switch {
	case changed && closed:
		return slot.Action{Kind: slot.Again, At: time.Now().Add(s.bands.Guard)}
	case changed:
		return slot.Action{Kind: slot.Again, At: time.Now().Add(s.idle())} // requeue knows better
	case closed && below == s.bands.Watch:
		return slot.Action{Kind: slot.Done}
	case closed:
		return s.bands.Discard(h)
	}
	return s.bands.Clean(h, below)
}

// changed reports whether this backend may have changed the records since their last lookup by the
// janitor. The caller holds the janitor's mutex.
func (d *duty) changed() bool { return d.underway > 0 || d.changes != d.seen }

// idle returns how long after an action that sets TTLs a record can have to be removed.
func (s *slots[T]) idle() time.Duration {
	return time.Duration(s.bands.Margin-s.bands.Doom) * s.bands.Unit
}

// requeue queues a duty again after its records were cleaned. It returns false, and drops the duty, if there are no
// records any more.
func (j *janitor[T]) requeue(k *cleaning[T]) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := k.slots
	if !s.changed() {
		if k.absent {
			s.owed = false
			j.duties--
			return false
		}
		s.cleanAt = k.again
	}
	j.cleaner(s.bands.Guard).push(s, s.cleanAt)
	return true
}

// last returns the latest end of a window before a time, for all clients, of those that this backend has opened.
func (j *janitor[T]) last(before time.Time) (end time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.cleaners {
		for _, s := range j.cleaners[i].queue {
			if k := s.current(); k.ok && !k.Latest.After(before) && k.Latest.After(end) {
				end = k.Latest
			}
		}
	}
	return end
}

// close removes the records that are not in use. It is called when the backend is closed, with what
// is under way still going on. The records of open windows are left to others, which may count
// in them.
func (j *janitor[T]) close() {
	j.mu.Lock()
	j.closed = true
	for i := range j.cleaners {
		j.cleaners[i].start() // so that it notices
	}
	j.mu.Unlock()
	j.running.Wait()
}

// dutyQueue is a heap of slots with duties. The one to do first comes first.
type dutyQueue[T codec.Value] []*slots[T]

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
	s := x.(*slots[T])
	s.index = len(*q)
	*q = append(*q, s)
}

// Pop removes the last duty.
func (q *dutyQueue[T]) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	s.index = -1
	return s
}
