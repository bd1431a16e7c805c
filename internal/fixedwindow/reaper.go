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

// reaper removes the records of windows that are over from one server, so that none of them
// expires there, which can lock the server up for good (H12). Each record is removed by the
// client that inserted it, and by no other. A client that removed all records that it meets
// would, at the end of a window, remove windows that were just opened. A record whose client
// has died is left to its TTL.
//
// Each server has a reaper of its own, so that a server that does not answer delays no other.
type reaper[T codec.Value] struct {
	backend *Backend[T]
	ctx     context.Context // ends with the backend
	server  Server[T]
	max     int           // records
	batch   int           // records that are removed in one batch
	wake    chan struct{} // holds an element if there may be an earlier record to remove
	// lock holds an element while records are being removed. It is a mutex that goroutines
	// in a testing/synctest bubble can wait for.
	lock chan struct{}

	// mu guards what follows, and the records of the entries.
	mu       sync.Mutex
	reserved int // records in queue, being removed, or about to be inserted
	queue    reapQueue[T]
}

// record is a record that is to be removed.
type record[T codec.Value] struct {
	entry  *entry[T]
	bucket int64

	// The mutex of the reaper guards what follows.
	due  time.Time // when to remove it
	end  time.Time // of its window; a margin later, its TTL has removed it
	next time.Time // when to remove the record that a Set has inserted under its name since
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
func (p *reaper[T]) reserve() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reserved >= p.max {
		return fmt.Errorf("%w: %d records are yet to be removed", ErrTooManyWindows, p.reserved)
	}
	p.reserved++
	return nil
}

// release undoes a reserve.
func (p *reaper[T]) release() {
	p.mu.Lock()
	p.reserved--
	p.mu.Unlock()
}

// pending returns the number of records that are yet to be removed.
func (p *reaper[T]) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reserved
}

// add has a record removed that was inserted, and whose window ends at end. A reserve must
// precede it. If the reaper has a record of that name already, they become one.
func (p *reaper[T]) add(e *entry[T], bucket int64, end time.Time) {
	due := end.Add(e.timing.grace())
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range e.records {
		if r.bucket == bucket {
			r.next, r.end = due, end
			p.reserved--
			return
		}
	}
	r := &record[T]{entry: e, bucket: bucket, due: due, end: end}
	e.records = append(e.records, r)
	p.push(r)
}

// insertFailed follows a call that was to insert a record and has failed. If it was sent, the
// record may exist and is to be removed. A reserve must precede it.
func (p *reaper[T]) insertFailed(e *entry[T], bucket int64, sent bool) {
	if !sent {
		p.release()
		return
	}
	p.add(e, bucket, e.timing.over(bucket, p.backend.now()))
}

// push queues r. The caller holds mu.
func (p *reaper[T]) push(r *record[T]) {
	heap.Push(&p.queue, r)
	if p.queue[0] != r {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run removes records when they are due, until the backend ends.
func (p *reaper[T]) run() {
	timer := time.NewTimer(maxReapInterval)
	defer timer.Stop()
	for {
		p.lock <- struct{}{}
		records, interval := p.due()
		if len(records) > 0 {
			p.remove(records)
		}
		<-p.lock
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
		case <-p.wake:
		case <-p.ctx.Done():
			return
		}
	}
}

// due removes a batch of records that are due from the queue and returns them. If there are
// none, it returns how long to wait for the first, or less than 0 if the queue is empty.
func (p *reaper[T]) due() (records []*record[T], interval time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, -1
	}
	now := p.backend.now()
	for len(p.queue) > 0 && len(records) < p.batch && !p.queue[0].due.After(now) {
		records = append(records, heap.Pop(&p.queue).(*record[T]))
	}
	if len(p.queue) == 0 {
		return records, -1
	}
	return records, min(max(p.queue[0].due.Sub(now), 0), maxReapInterval)
}

// finish removes the records of all windows that are over, due or not, because the backend is
// about to end. It waits for those that are over soon. The others are left alone: other clients
// may count in them.
func (p *reaper[T]) finish() {
	now := p.backend.now()
	if end := p.lastEnd(now.Add(closeWait)); end.After(now) {
		select {
		case <-time.After(end.Sub(now)):
			now = p.backend.now()
		case <-p.ctx.Done():
			return
		}
	}
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	var over []*record[T]
	p.mu.Lock()
	p.queue = slices.DeleteFunc(p.queue, func(r *record[T]) bool {
		if r.end.After(now) {
			return false
		}
		over = append(over, r)
		return true
	})
	heap.Init(&p.queue)
	p.mu.Unlock()
	for batch := range slices.Chunk(over, p.batch) {
		if p.ctx.Err() != nil {
			return
		}
		p.remove(batch)
	}
}

// lastEnd returns when the last window ends of those that end by a deadline, or the zero Time.
func (p *reaper[T]) lastEnd(deadline time.Time) (end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.queue {
		if r.end.After(end) && !r.end.After(deadline) {
			end = r.end
		}
	}
	return end
}

// remove removes a batch of records, after a QUERY that shows that their windows are over:
// after a Reset or Set, another window may have the name.
func (p *reaper[T]) remove(records []*record[T]) {
	b := p.backend
	queries := b.calls.Get()
	for _, r := range records {
		r.entry.addQuery(queries, r.bucket)
	}
	replies, err := p.do(queries)
	if err != nil {
		p.retry(records)
		return
	}
	purges := b.calls.Get()
	var over []*record[T]
	for i, r := range records {
		t := r.entry.timing
		switch reply := replies[i]; {
		case !reply.OK:
			p.done(r)
		case !t.aligned && uint64(reply.TTL.Amount) >= t.margin: // live
			left := t.duration(uint64(reply.TTL.Amount) - t.margin + 1)
			p.postpone(r, b.now().Add(left))
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
	if _, err := p.do(purges); err != nil {
		p.retry(over)
		return
	}
	b.calls.Put(purges)
	for _, r := range over {
		p.done(r)
	}
}

// do sends a call and returns its replies. They are valid until the call is put back. After an
// error the call must not be used any more.
func (p *reaper[T]) do(cl *conn.Call[T]) ([]conn.Reply[T], error) {
	owned, _, err := p.server.Do(p.ctx, cl)
	if err == nil {
		return cl.Replies, nil
	}
	if owned {
		p.backend.calls.Put(cl)
	}
	return nil, err
}

// postpone has r removed after the window that was found under its name, which ends at end, or
// after one that this client has inserted meanwhile.
func (p *reaper[T]) postpone(r *record[T], end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end.After(r.end) {
		r.end = end
	}
	r.due, r.next = r.end.Add(r.entry.timing.grace()), time.Time{}
	p.push(r)
}

// retry has records removed a little later.
func (p *reaper[T]) retry(records []*record[T]) {
	due := p.backend.now().Add(reapRetry)
	for _, r := range records {
		p.retryAt(r, due)
	}
}

// retryAt has r removed later, unless its TTL will have removed it by then.
func (p *reaper[T]) retryAt(r *record[T], due time.Time) {
	t := r.entry.timing
	p.mu.Lock()
	late := !due.Before(r.end.Add(t.duration(t.margin)))
	if !late {
		r.due = due
		p.push(r)
	}
	p.mu.Unlock()
	if late {
		p.done(r)
	}
}

// done is called when a record is gone. Its entry is removed if nobody needs it.
func (p *reaper[T]) done(r *record[T]) {
	p.mu.Lock()
	if !r.next.IsZero() {
		r.due, r.next = r.next, time.Time{}
		p.push(r)
		p.mu.Unlock()
		return
	}
	p.reserved--
	r.entry.records = slices.DeleteFunc(r.entry.records, func(o *record[T]) bool { return o == r })
	p.mu.Unlock()
	p.backend.table.remove(r.entry)
}
