package lease

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// entry is a hot key with one limit.
//
// The mutex guards the fields below it. Current changes only while it is held.
type entry struct {
	backend   *Backend
	hash      uint64
	key       string
	limit     window.Limit
	precision time.Duration         // by how much the ends of its windows may be too late
	current   atomic.Pointer[block] // what hits use; never nil

	mu      sync.Mutex
	next    *block        // taken before current is used up; nil: none
	taking  *taking       // under way; nil: none
	size    uint64        // of blocks
	waiting uint64        // what callers have waited for in vain
	since   time.Duration // when current became the current block
	dry     time.Duration // when it was first found to have too few places; 0: not yet
	count   uint64        // the last known count
	known   time.Duration // until when the count says something
	drops   uint64        // how many times the blocks were dropped
	closed  bool          // hits go to the backend

	// For tend.
	total  uint64 // places of earlier blocks that were spent
	tended *block // the current block when tend was last called
	spent  uint64 // of it at that time
	rounds int    // calls of tend
	hits   uint64 // what was spent in these rounds, at least
}

// taking is a take that is under way. What follows done is set before done is closed, or guarded by the
// mutex of the entry.
type taking struct {
	need    uint64 // of the caller that has begun it; 0: none
	waiting uint64 // what other callers wait for
	drops   uint64
	done    chan struct{}

	abandoned bool // nobody waits for need

	granted bool // to the caller that has begun it
	window  window.Window
	err     error
}

// verdict is what an entry says to a caller.
type verdict uint8

const (
	granted verdict = iota
	refused
	pass  // ask the backend
	again // there is another block
)

func newEntry(b *Backend, hash uint64, key string, l window.Limit, precision time.Duration) *entry {
	e := &entry{backend: b, hash: hash, key: key, limit: l, precision: precision, size: 1}
	e.current.Store(&block{})
	return e
}

// spend takes n places of the current block, or of the next one. It sets a, as the copies of results take
// time.
func (e *entry) spend(ctx context.Context, n uint64, a *answer) (v verdict, err error) {
	for {
		b := e.current.Load()
		if v = e.try(b, n, a); v != again {
			return v, nil
		}
		if v, err = e.refill(ctx, b, n, a); v != again || err != nil {
			return v, err
		}
	}
}

// try takes n places of the current block. Again says that it is to be replaced.
func (e *entry) try(b *block, n uint64, a *answer) verdict {
	switch b.kind {
	case places:
		last, ok := b.take(n)
		if !ok {
			return again
		}
		if e.backend.stop != nil {
			e.backend.stop()
		}
		now := e.backend.now() // not before the places are taken: the process may stop in between
		if last-n < b.mark && b.mark <= last {
			e.prefetch()
		}
		if now < b.until {
			b.answer(a, b.first+last, now)
			return granted
		}
		e.backend.giveBack(e, b, n)
	case refusal:
		b.note()
		if now := e.backend.now(); now < b.until && (b.count > e.limit.Max || n > e.limit.Max-b.count) {
			b.answer(a, b.count, now)
			a.refused, a.retry = true, a.left
			return refused
		}
	case through:
		b.note()
		if e.backend.now() < b.until {
			return pass
		}
	}
	return again
}

// refill replaces a block that did not have n places. It waits for a take if there is no next block.
func (e *entry) refill(ctx context.Context, b *block, n uint64, a *answer) (verdict, error) {
	e.mu.Lock()
	switch {
	case e.closed:
		e.mu.Unlock()
		return pass, nil
	case e.current.Load() != b:
		e.mu.Unlock()
		return again, nil
	case e.next != nil:
		e.use(e.next)
		e.mu.Unlock()
		return again, nil
	}
	if e.dry == 0 {
		e.dry = e.backend.now()
	}
	t, mine := e.taking, false
	if t == nil {
		t, mine = e.begin(n), true
	} else {
		t.waiting += n
	}
	e.mu.Unlock()
	if t == nil {
		return pass, nil
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		if !mine || e.abandon(t) {
			return refused, ctx.Err()
		}
		<-t.done
	}
	if t.err != nil || !mine {
		return again, t.err
	}
	if *a = answerOf(t.window); t.granted {
		return granted, nil
	}
	a.refused, a.retry = true, cmp.Or(a.retry, a.left)
	return refused, nil
}

// abandon says that the caller that has begun a take does not wait for it any more. It returns false if
// the take is done.
func (e *entry) abandon(t *taking) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taking != t {
		return false
	}
	t.abandoned = true
	return true
}

// prefetch begins to take the next block, unless there is one, or the window is full as far as is
// known.
func (e *entry) prefetch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.next != nil || e.taking != nil || e.count >= e.limit.Max && e.backend.now() < e.known {
		return
	}
	e.begin(0)
}

// begin begins a take for a caller that needs some places, or none. It returns nil if the backend is
// closed. The caller holds mu.
func (e *entry) begin(need uint64) *taking {
	count, now := e.count, e.backend.now()
	if now >= e.known {
		count = 0 // another window
	}
	b := e.current.Load()
	most := e.backend.maxLease - min(b.left(), e.backend.maxLease-1)
	n := blockSize(e.size, max(need, 1), e.waiting, e.limit.Max, count, most)
	t := &taking{need: need, drops: e.drops, done: make(chan struct{})}
	if !e.backend.run(func() { e.take(t, n) }) {
		return nil
	}
	e.taking, e.waiting = t, 0
	return t
}

// take takes n places, or fewer if these are refused, and makes a block of them.
func (e *entry) take(t *taking, n uint64) {
	b := e.backend
	ctx, cancel := context.WithTimeout(b.ctx, takeTimeout)
	defer cancel()
	for {
		sent := b.now()
		w, err := b.Backend.Take(ctx, e.key, e.limit, n)
		ok := err == nil && !w.Refused
		b.takes.Add(1)
		if ok || err != nil {
			b.taken.Add(n)
		}
		if err == nil && !ok {
			if less, fits := smaller(n, max(t.need, 1), e.limit.Max, w.Count); fits {
				n = less
				continue
			}
		}
		e.finish(t, n, w, ok, err, sent)
		return
	}
}

// finish makes a block of the outcome of a take that was sent at a time.
func (e *entry) finish(t *taking, n uint64, w window.Window, ok bool, err error, sent time.Duration) {
	var surplus []*block
	e.mu.Lock()
	e.taking = nil
	t.window, t.granted, t.err = w, ok, err
	if err != nil {
		e.size, e.known = 1, 0
		e.backend.lost.Add(n) // for all that is known
	} else {
		nb := e.blockOf(n, w, ok, sent)
		if t.granted = ok && t.need > 0 && !t.abandoned; t.granted {
			nb.spent.Store(t.need)
			t.window.Count = nb.first + t.need
		}
		e.count, e.known = w.Count, nb.over
		if e.waiting = t.waiting - min(t.waiting, n); t.waiting > e.size {
			e.size = min(t.waiting, e.backend.maxLease)
		}
		surplus = e.publish(t, nb)
	}
	e.mu.Unlock()
	close(t.done)
	for _, old := range surplus { // not in another goroutine, as there may be none after Close
		e.backend.returnPlaces(e, old, old.retire())
	}
}

// blockOf returns what the answer to a take of n says.
func (e *entry) blockOf(n uint64, w window.Window, ok bool, sent time.Duration) *block {
	b := e.backend
	now := b.now()
	nb := &block{id: w.ID, expires: w.ExpiresAt, count: w.Count, over: now + w.Left}
	if !ok {
		nb.kind = refusal
		nb.until = min(now+denialFor(e.limit.Scale, b.age), nb.over)
		return nb
	}
	nb.size, nb.first, nb.mark = n, w.Count-n, markOf(n)
	nb.until = untilOf(sent, diesAt(sent, w.Left, e.precision), b.age)
	return nb
}

// publish makes a block the next one, or the current one if that is used up. It returns the blocks that
// have to be given back: the old one, and nb if it is not used. The caller holds mu.
func (e *entry) publish(t *taking, nb *block) (surplus []*block) {
	now := e.backend.now()
	switch {
	case e.closed || t.drops != e.drops:
		return []*block{nb}
	case nb.kind == places && now >= nb.until:
		// A block is of no use so shortly before the end of the window.
		old := e.replace(&block{kind: through, until: min(nb.over, now+e.backend.age), over: nb.over})
		return []*block{old, nb}
	case e.current.Load().usable(now) && t.need == 0:
		e.next = nb
		return nil
	default:
		return []*block{e.replace(nb)}
	}
}

// use makes a block the current one. The caller holds mu.
func (e *entry) use(nb *block) {
	e.next = nil
	old := e.replace(nb)
	e.backend.discardAll(e, []*block{old})
}

// replace makes nb the current block, and chooses the size of later ones. It returns the old block. The
// caller holds mu.
func (e *entry) replace(nb *block) (old *block) {
	now := e.backend.now()
	if old = e.current.Load(); old.size > 0 {
		spent := old.size - old.left()
		took := now - e.since
		if e.dry > 0 { // the time for which callers waited since is that of the network
			took = e.dry - e.since
		}
		e.size = sizeAfter(e.size, spent, took, goalFor(e.backend.age))
		e.total += spent
	}
	e.since, e.dry = now, 0
	e.current.Store(nb)
	return old
}

// drop retires all blocks, and closes the entry if that is to be. It returns those that had places.
func (e *entry) drop(closing bool) (dropped []*block) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drops++
	e.known = 0
	e.closed = e.closed || closing
	if e.next != nil {
		dropped = append(dropped, e.next)
		e.next = nil
	}
	return append(dropped, e.replace(&block{}))
}

// hotRounds is how often tend is called before it decides whether a key is still hot.
const hotRounds = 8

// tend gives back blocks that are idle or too old. It returns false if the key is not hot any more.
func (e *entry) tend() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, b := e.backend.now(), e.current.Load()
	if b.kind == places {
		spent := b.size - b.left()
		idle := b == e.tended && spent == e.spent
		e.tended, e.spent = b, spent
		if nb := e.next; nb != nil && (idle || now >= nb.until) {
			e.next = nil
			e.backend.discardAll(e, []*block{nb})
		}
		if b.left() > 0 && (idle || now >= b.until) {
			nb := &block{}
			if e.next != nil {
				nb = e.next
			}
			e.use(nb)
			e.size = max(spent, 1)
		}
	} else if b.spent.Swap(0) > 0 {
		e.total += hotHits
	}
	if e.rounds++; e.rounds%hotRounds != 0 {
		return true
	}
	b = e.current.Load()
	hits := e.total + b.size - b.left()
	hot := hits >= e.hits+hotHits
	e.hits = hits
	return hot || e.taking != nil
}

// held returns how many places the entry has.
func (e *entry) held() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.current.Load().left()
	if e.next != nil {
		n += e.next.left()
	}
	return n
}
