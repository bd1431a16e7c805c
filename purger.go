package throttr

import (
	"container/heap"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
)

const (
	// purgeBatch is how many records are removed in one batch.
	purgeBatch = 256
	// purgeRetry is how long a removal that has failed waits for the next try.
	purgeRetry = 250 * time.Millisecond
	// purgeNap bounds how long the purger sleeps: the backend's clock need not be the
	// one that timers go by.
	purgeNap = time.Second
)

// purger removes the records of windows that are over, so that none of them expires on
// the server, which can lock it up for good (H12). Each record is removed by the client
// that inserted it, and by no other: a client that removed what it merely met would, at
// a window's end, remove windows just opened. A record whose client has died is left to
// its TTL.
//
// Each server has a purger of its own, so that one that is away holds up no other.
type purger[T codec.Value] struct {
	backend *ServerBackend[T]
	max     int
	wake    chan struct{} // one element: there may be an earlier record to remove
	turn    chan struct{} // holds an element while records are being removed

	mu      sync.Mutex
	claimed int // records in due, or about to be
	due     purgeHeap[T]
}

// ownedRecord is a record to remove.
type ownedRecord[T codec.Value] struct {
	lane   *lane[T]
	bucket int64

	// Guarded by the purger's mutex.
	due  time.Time // when to remove it
	end  time.Time // of its window; a margin later, its TTL has removed it
	next time.Time // when to remove the record that a Set has put under its name since
}

// purgeHeap implements heap.Interface: the first to remove comes first.
type purgeHeap[T codec.Value] []*ownedRecord[T]

// Len implements heap.Interface, as the methods below do.
func (h purgeHeap[T]) Len() int { return len(h) }

// Less puts what is due sooner first.
func (h purgeHeap[T]) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

// Swap swaps two records.
func (h purgeHeap[T]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push appends a record.
func (h *purgeHeap[T]) Push(x any) { *h = append(*h, x.(*ownedRecord[T])) }

// Pop takes the last record away.
func (h *purgeHeap[T]) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}

func (p *purger[T]) init(b *ServerBackend[T], max int) {
	p.backend, p.max = b, max
	p.wake, p.turn = make(chan struct{}, 1), make(chan struct{}, 1)
}

// reserve makes sure that a record can be added. It returns ErrOverloaded if there are
// too many.
func (p *purger[T]) reserve() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claimed >= p.max {
		return fmt.Errorf("%w: %d records are yet to be removed", ErrOverloaded, p.claimed)
	}
	p.claimed++
	return nil
}

// release takes back a reserve.
func (p *purger[T]) release() {
	p.mu.Lock()
	p.claimed--
	p.mu.Unlock()
}

// add has the record of a window that ends at end removed, in good time before it would
// expire. The reserve is used up. A record that was owned already, under the same name, is
// so once only.
func (p *purger[T]) add(l *lane[T], bucket int64, end time.Time) {
	due := end.Add(l.timing.slack())
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range l.owned {
		if r.bucket == bucket {
			r.next, r.end = due, end
			p.claimed--
			return
		}
	}
	r := &ownedRecord[T]{lane: l, bucket: bucket, due: due, end: end}
	l.owned = append(l.owned, r)
	p.push(r)
}

// unanswered follows a batch that was to insert a record and has failed: the record may
// have come to be all the same, and then it is to be removed. The reserve is used up.
func (p *purger[T]) unanswered(l *lane[T], bucket int64, err error) {
	if SafeToRetry(err) {
		p.release()
		return
	}
	p.add(l, bucket, l.timing.over(bucket, p.backend.now()))
}

// push has r removed when it is due. The mutex is held.
func (p *purger[T]) push(r *ownedRecord[T]) {
	heap.Push(&p.due, r)
	if p.due[0] != r {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run removes what is due until the backend ends.
func (p *purger[T]) run() {
	timer := time.NewTimer(purgeNap)
	defer timer.Stop()
	for {
		p.turn <- struct{}{}
		records, nap := p.collect()
		if len(records) > 0 {
			p.remove(records)
		}
		<-p.turn
		if len(records) > 0 {
			continue
		}
		wait := timer.C
		if nap < 0 {
			wait = nil
		} else {
			timer.Reset(nap)
		}
		select {
		case <-wait:
		case <-p.wake:
		case <-p.backend.ctx.Done():
			return
		}
	}
}

// collect takes the records that are due, or returns how long to wait for the first; less
// than 0 if there is none.
func (p *purger[T]) collect() (records []*ownedRecord[T], nap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backend.ctx.Err() != nil {
		return nil, -1
	}
	now := p.backend.now()
	for len(p.due) > 0 && len(records) < purgeBatch && !p.due[0].due.After(now) {
		records = append(records, heap.Pop(&p.due).(*ownedRecord[T]))
	}
	if len(p.due) == 0 {
		return records, -1
	}
	return records, min(max(p.due[0].due.Sub(now), 0), purgeNap)
}

// finish removes the records of all windows that are over, due or not, for the backend is
// about to end; a removal that is under way ends before. Those of active windows are left to
// their TTL: others may count in them.
func (p *purger[T]) finish() {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	var ended []*ownedRecord[T]
	p.mu.Lock()
	now := p.backend.now()
	left := p.due[:0]
	for _, r := range p.due {
		if r.end.After(now) {
			left = append(left, r)
		} else {
			ended = append(ended, r)
		}
	}
	clear(p.due[len(left):])
	p.due = left
	heap.Init(&p.due)
	p.mu.Unlock()
	for len(ended) > 0 && p.backend.ctx.Err() == nil {
		n := min(len(ended), purgeBatch)
		p.remove(ended[:n])
		ended = ended[n:]
	}
}

// remove removes records, after a QUERY that shows their windows to be over: a Reset or
// Set may have put another window under the name.
func (p *purger[T]) remove(records []*ownedRecord[T]) {
	b := p.backend
	var look, purge Batch[T]
	seen := make([]CounterReply[T], len(records))
	for i, r := range records {
		seen[i] = CounterReply[T]{look.add(r.lane.key, codec.Query{Key: r.name()}, nil)}
	}
	b.client.Do(b.ctx, &look) // each reply tells its own error
	var over []*ownedRecord[T]
	var replies []Reply[T]
	for i, r := range records {
		switch c, found, err := seen[i].Counter(); {
		case err != nil:
			p.again(r, b.now().Add(purgeRetry))
		case !found:
			p.done(r)
		case !r.lane.timing.aligned && uint64(c.TTL.Amount) >= r.lane.timing.margin: // live
			left := r.lane.timing.duration(uint64(c.TTL.Amount) - r.lane.timing.margin + 1)
			p.live(r, b.now().Add(left))
		default:
			over = append(over, r)
			replies = append(replies, purge.add(r.lane.key, codec.Purge{Key: r.name()}, nil))
		}
	}
	b.client.Do(b.ctx, &purge)
	for i, r := range over {
		if _, err := replies[i].OK(); err != nil {
			p.again(r, b.now().Add(purgeRetry))
		} else {
			p.done(r)
		}
	}
}

func (r *ownedRecord[T]) name() []byte { return r.lane.appendName(nil, r.bucket) }

// live has r removed after a window that was put under its name since, which ends at end,
// or after one that this client has put there meanwhile.
func (p *purger[T]) live(r *ownedRecord[T], end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end.After(r.end) {
		r.end = end
	}
	r.due, r.next = r.end.Add(r.lane.timing.slack()), time.Time{}
	p.push(r)
}

// again has another try at r later, unless its TTL will have removed it by then.
func (p *purger[T]) again(r *ownedRecord[T], due time.Time) {
	t := r.lane.timing
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

// done is the end of a record, and of its lane if nobody needs it.
func (p *purger[T]) done(r *ownedRecord[T]) {
	p.mu.Lock()
	if !r.next.IsZero() {
		r.due, r.next = r.next, time.Time{}
		p.push(r)
		p.mu.Unlock()
		return
	}
	p.claimed--
	r.lane.owned = slices.DeleteFunc(r.lane.owned, func(o *ownedRecord[T]) bool { return o == r })
	p.mu.Unlock()
	p.backend.lanes.drop(r.lane)
}
