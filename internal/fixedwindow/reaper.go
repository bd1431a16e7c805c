package fixedwindow

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
)

const (
	// reapBatch is how many records are removed in one batch.
	reapBatch = 256
	// reapRetry is how long a removal that has failed waits for its next try.
	reapRetry = 250 * time.Millisecond
	// maxReapInterval bounds how long the reaper sleeps: the backend's clock need not be the
	// one that timers go by.
	maxReapInterval = time.Second
)

// reaper removes the records of windows that are over from one server. None of them may expire
// there, because that can lock the server up for good (H12).
//
// The client that inserted a record removes it, and no other client does. A client that removed
// all records that it meets would, at the end of a window, remove windows that were just opened.
// A record whose client has died is left to its TTL.
//
// Each server has a reaper of its own, so that a server that does not respond delays no other.
type reaper[T codec.Value] struct {
	backend *Backend[T]
	ctx     context.Context // ends with the backend
	server  Server[T]
	max     int           // records that may be reserved
	batch   int           // records that are removed together
	wake    chan struct{} // has an element if the first record of the queue is a new one

	// lock is held while records are removed: it has an element then. It is a channel because
	// its holder waits for the network: in a testing/synctest bubble, time does not pass while
	// a goroutine waits for a mutex.
	lock chan struct{}

	// mu guards the fields below, and the records of the entries.
	mu       sync.Mutex
	reserved int // records in the queue, being removed, or about to be inserted
	queue    reapQueue[T]
}

// record is a record that is to be removed.
type record[T codec.Value] struct {
	entry  *entry[T]
	bucket int64

	// The mutex of the reaper guards the fields below.
	due  time.Time // when to remove the record
	end  time.Time // of its window; a margin later, its TTL has removed the record
	next time.Time // when to remove the record that a Set has inserted under the name since
}

// reapQueue is a heap of records. The one to remove first comes first.
type reapQueue[T codec.Value] []*record[T]

// Len implements [heap.Interface], as the methods below do.
func (q reapQueue[T]) Len() int { return len(q) }

// Less orders records by when they are due.
func (q reapQueue[T]) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap swaps two records.
func (q reapQueue[T]) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push appends a record.
func (q *reapQueue[T]) Push(x any) { *q = append(*q, x.(*record[T])) }

// Pop removes the last record.
func (q *reapQueue[T]) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return r
}

func newReaper[T codec.Value](b *Backend[T], server Server[T], max, batch int) *reaper[T] {
	return &reaper[T]{
		backend: b, ctx: b.group.Context(), server: server, max: max, batch: batch,
		wake: make(chan struct{}, 1), lock: make(chan struct{}, 1),
	}
}

// reserve makes sure that a record can be added. It returns ErrTooManyWindows if there are
// too many.
func (rp *reaper[T]) reserve() error {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	if rp.reserved >= rp.max {
		return fmt.Errorf("%w: %d records are yet to be removed", ErrTooManyWindows, rp.reserved)
	}
	rp.reserved++
	return nil
}

// release undoes a reserve.
func (rp *reaper[T]) release() {
	rp.mu.Lock()
	rp.reserved--
	rp.mu.Unlock()
}

// pending returns the number of records that are yet to be removed.
func (rp *reaper[T]) pending() int {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	return rp.reserved
}

// add queues a record that was inserted, and whose window ends at end. Each add uses up a
// reserve. If the reaper has a record of that name already, add changes that one.
func (rp *reaper[T]) add(e *entry[T], bucket int64, end time.Time) {
	due := end.Add(e.timing.grace())
	rp.mu.Lock()
	defer rp.mu.Unlock()
	for _, r := range e.records {
		if r.bucket == bucket {
			r.next, r.end = due, end
			rp.reserved--
			return
		}
	}
	r := &record[T]{entry: e, bucket: bucket, due: due, end: end}
	e.records = append(e.records, r)
	rp.push(r)
}

// insertFailed is called when a call that inserts a record has failed. If the call was sent, the
// record may exist and is queued. It uses up a reserve.
func (rp *reaper[T]) insertFailed(e *entry[T], bucket int64, sent bool) {
	if !sent {
		rp.release()
		return
	}
	rp.add(e, bucket, e.timing.over(bucket, rp.backend.now()))
}

// push queues r. The caller holds mu.
func (rp *reaper[T]) push(r *record[T]) {
	heap.Push(&rp.queue, r)
	if rp.queue[0] != r {
		return
	}
	select {
	case rp.wake <- struct{}{}:
	default:
	}
}

// run removes records when they are due, until the backend ends.
func (rp *reaper[T]) run() {
	timer := time.NewTimer(maxReapInterval)
	defer timer.Stop()
	for {
		rp.lock <- struct{}{}
		records, interval := rp.due()
		if len(records) > 0 {
			rp.remove(records)
		}
		<-rp.lock
		if len(records) > 0 {
			continue
		}
		tick := timer.C
		if interval < 0 {
			tick = nil
		} else {
			timer.Reset(interval)
		}
		select {
		case <-tick:
		case <-rp.wake:
		case <-rp.ctx.Done():
			return
		}
	}
}

// due removes the records that are due from the queue, a batch at most, and returns them. It also
// returns how long to wait for the first of the others, or less than 0 if there are none.
func (rp *reaper[T]) due() (records []*record[T], interval time.Duration) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	if rp.ctx.Err() != nil {
		return nil, -1
	}
	now := rp.backend.now()
	for len(rp.queue) > 0 && len(records) < rp.batch && !rp.queue[0].due.After(now) {
		records = append(records, heap.Pop(&rp.queue).(*record[T]))
	}
	if len(rp.queue) == 0 {
		return records, -1
	}
	return records, min(max(rp.queue[0].due.Sub(now), 0), maxReapInterval)
}

// finish removes the records of all windows that are over, due or not. It is called when the
// backend is closed. The records of active windows are left to the sweepers of others, because
// other clients may count in them.
func (rp *reaper[T]) finish() {
	rp.lock <- struct{}{}
	defer func() { <-rp.lock }()
	var over []*record[T]
	rp.mu.Lock()
	now := rp.backend.now()
	rp.queue = slices.DeleteFunc(rp.queue, func(r *record[T]) bool {
		if r.end.After(now) {
			return false
		}
		over = append(over, r)
		return true
	})
	heap.Init(&rp.queue)
	rp.mu.Unlock()
	for batch := range slices.Chunk(over, rp.batch) {
		if rp.ctx.Err() != nil {
			return
		}
		rp.remove(batch)
	}
}

// lastEnd returns when the last window ends of those that end by a deadline, or the zero Time.
func (rp *reaper[T]) lastEnd(deadline time.Time) (end time.Time) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	for _, r := range rp.queue {
		if r.end.After(end) && !r.end.After(deadline) {
			end = r.end
		}
	}
	return end
}

// remove removes a batch of records. A QUERY shows first whether their windows are over: after a
// Reset or Set, another window may have the name.
func (rp *reaper[T]) remove(records []*record[T]) {
	b := rp.backend
	queries := b.calls.Get()
	for _, r := range records {
		r.entry.addQuery(queries, r.bucket)
	}
	replies, err := rp.do(queries)
	if err != nil {
		rp.retry(records)
		return
	}
	purges := b.calls.Get()
	var over []*record[T]
	for i, r := range records {
		t := r.entry.timing
		switch reply := replies[i]; {
		case !reply.OK:
			rp.done(r)
		case !t.aligned && uint64(reply.TTL.Amount) >= t.margin: // live
			left := t.duration(uint64(reply.TTL.Amount) - t.margin + 1)
			rp.postpone(r, b.now().Add(left))
		default:
			over = append(over, r)
			r.entry.addPurge(purges, r.bucket)
		}
	}
	b.calls.Put(queries)
	if len(over) == 0 {
		b.calls.Put(purges)
		return
	}
	if _, err := rp.do(purges); err != nil {
		rp.retry(over)
		return
	}
	b.calls.Put(purges)
	for _, r := range over {
		rp.done(r)
	}
}

// do sends a call and returns its replies, which are valid until the call is recycled. After an
// error the call must not be used any more.
func (rp *reaper[T]) do(cl *conn.Call[T]) ([]conn.Reply[T], error) {
	done, _, err := rp.server.Do(rp.ctx, cl)
	if err == nil {
		return cl.Replies, nil
	}
	if done {
		rp.backend.calls.Put(cl)
	}
	return nil, err
}

// postpone queues r again because its window is active. It ends at end, or later if this client
// has inserted another one under the name meanwhile.
func (rp *reaper[T]) postpone(r *record[T], end time.Time) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	if end.After(r.end) {
		r.end = end
	}
	r.due, r.next = r.end.Add(r.entry.timing.grace()), time.Time{}
	rp.push(r)
}

// retry queues records again, to be removed a little later.
func (rp *reaper[T]) retry(records []*record[T]) {
	due := rp.backend.now().Add(reapRetry)
	for _, r := range records {
		rp.retryAt(r, due)
	}
}

// retryAt queues r again, unless its TTL will have removed it by the time due.
func (rp *reaper[T]) retryAt(r *record[T], due time.Time) {
	t := r.entry.timing
	rp.mu.Lock()
	late := !due.Before(r.end.Add(t.duration(t.margin)))
	if !late {
		r.due = due
		rp.push(r)
	}
	rp.mu.Unlock()
	if late {
		rp.done(r)
	}
}

// done is called when a record does not exist any more. Its entry is removed if it is not in use.
func (rp *reaper[T]) done(r *record[T]) {
	rp.mu.Lock()
	if !r.next.IsZero() {
		r.due, r.next = r.next, time.Time{}
		rp.push(r)
		rp.mu.Unlock()
		return
	}
	rp.reserved--
	r.entry.records = slices.DeleteFunc(r.entry.records, func(o *record[T]) bool { return o == r })
	rp.mu.Unlock()
	rp.backend.table.remove(r.entry)
}
