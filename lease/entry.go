package lease

import (
	"context"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// entry is a hot key with one limit.
type entry struct {
	backend   *Backend
	key       string
	limit     window.Limit
	precision time.Duration // by how much the ends of its windows may be too late

	mu      sync.Mutex    // guards what follows, and the places of blocks
	current *block        // what hits use; never nil
	next    *block        // taken before current is used up; nil: none
	taking  *taking       // under way; nil: none
	waiting uint64        // what callers wait for now
	size    uint64        // of blocks
	since   time.Duration // when current became the current block
	dry     time.Duration // when it was first found to have too few places; 0: not yet
	count   uint64        // the last known count
	known   time.Duration // until when the count says something
	drops   uint64        // how many times the blocks were dropped
	closed  bool          // hits go to the backend

	hits   uint64 // on the entry
	tended uint64 // of these, when tend was last called
	rounds int    // calls of tend
	round  uint64 // of the hits, when tend last decided whether the key is hot
}

// taking is a take that is under way. The mutex of the entry guards it until done is closed.
type taking struct {
	need  uint64 // of the caller that has begun it; 0: none
	drops uint64
	done  chan struct{}

	finished bool
	window   window.Window
	err      error
}

// verdict is what an entry says to a caller.
type verdict uint8

const (
	again     verdict = iota // the current block has nothing for it
	byBlock                  // granted or refused by a block
	byStore                  // granted or refused by the backend
	toBackend                // the caller asks the backend
)

func newEntry(b *Backend, key string, l window.Limit, precision time.Duration) *entry {
	return &entry{backend: b, key: key, limit: l, precision: precision, size: 1, current: &block{}}
}

// spend takes n places of the current block, or of one that it waits for.
func (e *entry) spend(ctx context.Context, n uint64) (window.Window, verdict, error) {
	w, v, tried := e.try(n)
	if v != again {
		return w, v, nil
	}
	for v == again {
		if t, mine := e.join(n, tried); t != nil {
			select {
			case <-t.done:
			case <-ctx.Done():
			}
			if w, v, err := e.outcome(ctx, n, t, mine); v != again || err != nil {
				return w, v, err
			}
		}
		w, v, tried = e.try(n)
	}
	return w, v, nil
}

// try takes n places of the current block, and returns the block that had none, or nothing to say.
func (e *entry) try(n uint64) (w window.Window, v verdict, tried *block) {
	b := e.backend
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return w, toBackend, nil
	}
	e.hits++
	if e.next != nil && !e.current.has(n) {
		e.use(e.next)
	}
	tried = e.current
	taken, place := tried.has(n), uint64(0)
	if taken {
		var nearEnd bool
		if place, nearEnd = tried.take(n); nearEnd {
			e.prefetch()
		}
	}
	e.mu.Unlock()
	if taken && b.stop != nil {
		b.stop()
	}
	now := b.now() // not before the places are taken: the process may stop in between
	switch {
	case taken && now < tried.until:
		return tried.window(place, now), byBlock, nil
	case taken:
		e.expire(tried, n)
	case now >= tried.until:
	case tried.kind == through:
		return w, toBackend, nil
	case tried.kind == refusal && n > e.limit.Max-min(e.limit.Max, tried.count):
		w = tried.window(tried.count, now)
		w.Refused = true
		w.RetryAfter = w.Left
		return w, byBlock, nil
	}
	return w, again, tried
}

// expire gives back n places of a block that is too old, and those that are left of it.
func (e *entry) expire(b *block, n uint64) {
	e.mu.Lock()
	if e.current == b {
		e.useNext()
	}
	e.mu.Unlock()
	e.backend.giveBack(e, b, n)
}

// join returns the take that a caller waits for, and whether it has begun it. It returns nil if there is something
// else to try than the block that it has tried.
func (e *entry) join(n uint64, tried *block) (t *taking, mine bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.current != tried || e.next != nil {
		return nil, false
	}
	if e.dry == 0 {
		e.dry = e.backend.now()
	}
	t = e.taking
	if t == nil {
		t = e.begin(n)
		mine = true
	}
	if t != nil {
		e.waiting += n
	}
	return t, mine
}

// outcome returns what a take has brought to a caller that has waited for n. If the caller does not wait any more, it
// leaves its places to others.
func (e *entry) outcome(ctx context.Context, n uint64, t *taking, mine bool) (w window.Window, v verdict, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting -= n
	switch {
	case !t.finished:
		if mine {
			t.need = 0
		}
		return w, again, ctx.Err()
	case t.err != nil || !mine:
		return w, again, t.err
	}
	return t.window, byStore, nil
}

// prefetch begins to take the next block, unless there is one, or the window is full as far as is
// known. The caller holds mu.
func (e *entry) prefetch() {
	if e.next == nil && e.taking == nil && e.left() > 0 {
		e.begin(0)
	}
}

// left returns what is left of the limit, as far as is known. The caller holds mu.
func (e *entry) left() uint64 {
	if e.backend.now() >= e.known {
		return e.limit.Max // another window
	}
	return e.limit.Max - min(e.limit.Max, e.count)
}

// begin begins a take for a caller that needs some places, or none. It returns nil, and closes the entry, if the
// backend is closed. The caller holds mu.
func (e *entry) begin(need uint64) *taking {
	b := e.backend
	n := blockSize(e.size, max(need, 1), e.waiting, e.left(), b.maxLease-min(e.current.left(), b.maxLease-1))
	t := &taking{need: need, drops: e.drops, done: make(chan struct{})}
	if !b.run(func() { e.take(t, need, n) }) {
		e.closed = true
		return nil
	}
	e.taking = t
	return t
}

// take takes n places, or fewer if these are refused, and makes a block of them.
func (e *entry) take(t *taking, need, n uint64) {
	b := e.backend
	ctx, cancel := context.WithTimeout(b.ctx, takeTimeout)
	defer cancel()
	for {
		sent := b.now()
		w, err := b.Backend.Take(ctx, e.key, e.limit, n)
		if err != nil {
			err = b.failure(ctx, err)
		}
		b.takes.Add(1)
		if err != nil || !w.Refused {
			b.taken.Add(n)
		}
		if err == nil && w.Refused {
			if less, fits := smaller(n, max(need, 1), e.limit.Max, w.Count); fits {
				n = less
				continue
			}
		}
		for _, s := range e.finish(t, n, w, err, sent) {
			b.returnPlaces(e, s.block, s.n) // not in another goroutine, as there may be none after Close
		}
		return
	}
}

// surplus is n places of a block that nobody uses.
type surplus struct {
	block *block
	n     uint64
}

// finish ends a take of n that was sent at a time, and makes a block of its outcome. It returns what has to be given
// back.
func (e *entry) finish(t *taking, n uint64, w window.Window, err error, sent time.Duration) (unused []surplus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(t.done)
	e.taking = nil
	t.finished = true
	t.window = w
	t.err = err
	if err != nil {
		e.size = 1
		e.known = 0
		e.backend.lost.Add(n) // for all that is known
		return nil
	}
	nb := e.blockOf(n, w, sent)
	others := e.waiting - min(e.waiting, t.need)
	if most := blockSize(e.size, max(t.need, 1), others, e.limit.Max-min(e.limit.Max, nb.first),
		e.backend.maxLease); nb.size > most {
		unused = append(unused, surplus{nb, nb.size - most}) // of callers that have left
		nb.size = most
	}
	if !w.Refused && t.need > 0 {
		t.window.Count, _ = nb.take(t.need)
	}
	e.count = w.Count
	e.known = nb.over
	if others > e.size {
		e.size = min(others, e.backend.maxLease)
	}
	for _, old := range e.publish(t, nb) {
		unused = append(unused, surplus{old, old.retire()})
	}
	return unused
}

// blockOf returns what the answer to a take of n says, which was sent at a time.
func (e *entry) blockOf(n uint64, w window.Window, sent time.Duration) *block {
	b := e.backend
	now := b.now()
	nb := &block{id: w.ID, expires: w.ExpiresAt, count: w.Count, over: now + w.Left}
	if w.Refused {
		nb.kind = refusal
		nb.until = min(now+denialFor(e.limit.Scale, b.age), nb.over)
		return nb
	}
	nb.size = n
	nb.first = w.Count - n
	nb.until = untilOf(sent, diesAt(sent, w.Left, e.precision), b.age)
	return nb
}

// publish makes a block the next one, or the current one if that is used up. It returns the blocks that
// have to be given back: the old one, and nb if it is not used. The caller holds mu.
func (e *entry) publish(t *taking, nb *block) []*block {
	now := e.backend.now()
	switch {
	case e.closed || t.drops != e.drops:
		return []*block{nb}
	case nb.kind == places && now >= nb.until:
		// A block is of no use so shortly before the end of the window.
		old := e.replace(&block{kind: through, until: min(nb.over, now+e.backend.age), over: nb.over})
		return []*block{old, nb}
	case e.current.usable(now) && t.need == 0:
		e.next = nb
		return nil
	default:
		return []*block{e.replace(nb)}
	}
}

// useNext makes the next block the current one, or an empty one if there is none. The caller holds mu.
func (e *entry) useNext() {
	nb := e.next
	if nb == nil {
		nb = &block{}
	}
	e.use(nb)
}

// use makes a block the current one, and gives back what is left of the old one. The caller holds mu.
func (e *entry) use(nb *block) {
	e.next = nil
	e.discard(e.replace(nb))
}

// discard gives back what is left of a block. The caller holds mu.
func (e *entry) discard(b *block) {
	if left := b.retire(); left > 0 {
		e.backend.giveBack(e, b, left)
	}
}

// replace makes nb the current block, and chooses the size of later ones. It returns the old block. The
// caller holds mu.
func (e *entry) replace(nb *block) (old *block) {
	now := e.backend.now()
	if old = e.current; old.size > 0 {
		took := now - e.since
		if e.dry > 0 { // the time for which callers waited since is that of the network
			took = e.dry - e.since
		}
		e.size = sizeAfter(e.size, old.spent, took, goalFor(e.backend.age))
	}
	e.since = now
	e.dry = 0
	e.current = nb
	return old
}

// drop gives back all blocks, and closes the entry if that is to be.
func (e *entry) drop(closing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drops++
	e.known = 0
	e.closed = e.closed || closing
	e.clear()
}

// clear gives back all blocks. The caller holds mu.
func (e *entry) clear() {
	if e.next != nil {
		e.discard(e.next)
	}
	e.use(&block{})
}

// hotRounds is how often tend is called before it decides whether a key is still hot.
const hotRounds = 8

// tend gives back blocks that are idle. It returns false if the key is not hot any more.
func (e *entry) tend() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hits == e.tended {
		spent := e.current.spent
		idle := e.current.left() > 0
		e.clear()
		if idle {
			e.size = max(spent, 1)
		}
	}
	e.tended = e.hits
	if e.rounds++; e.rounds%hotRounds != 0 {
		return true
	}
	hot := e.hits >= e.round+hotHits
	e.round = e.hits
	return hot || e.taking != nil
}

// held returns how many places the entry has.
func (e *entry) held() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.current.left()
	if e.next != nil {
		n += e.next.left()
	}
	return n
}
