package lease

import (
	"cmp"
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
	taking  *taking       // under way; nil: none, or its places are of no use any more
	waiting uint64        // places that callers wait for now
	size    uint64        // of blocks
	count   uint64        // the last known count
	known   time.Duration // until when the count says something
	closed  bool          // hits go to the backend

	timer  *time.Timer // of tend; nil until the first take
	hits   uint64      // since tend has last decided whether the key is hot
	tended uint64      // of these, when tend was last called
	rounds int         // calls of tend since then
}

// taking is a take that is under way, for callers that wait for it, or ahead of them.
type taking struct {
	done chan struct{} // is closed when it has ended
	err  error         // why it has failed; valid then
}

// verdict is what an entry says to a caller.
type verdict uint8

const (
	again     verdict = iota // the current block has nothing for it
	byBlock                  // granted or refused by a block
	toBackend                // the caller asks the backend
)

func newEntry(b *Backend, key string, l window.Limit, precision time.Duration) *entry {
	return &entry{backend: b, key: key, limit: l, precision: precision, size: 1, current: &block{}}
}

// mostWaits is for how many takes a call waits at most.
const mostWaits = 8

// spend takes n places of the current block, or of one that it waits for. A call that others have left nothing of the
// blocks that it has waited for goes to the backend.
func (e *entry) spend(ctx context.Context, n uint64) (window.Window, verdict, error) {
	for range mostWaits {
		w, v, tried := e.try(n)
		if v != again {
			return w, v, nil
		}
		if err := e.await(ctx, n, tried); err != nil {
			return w, v, err
		}
	}
	w, v, _ := e.try(n)
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
		e.use(cmp.Or(e.next, &block{}))
	}
	e.mu.Unlock()
	e.backend.giveBack(e, b, n)
}

// await waits for a take, which it begins unless one is under way. It does not wait if there is something else to try
// than the block that had nothing. It returns why the take has failed, or the error of ctx.
func (e *entry) await(ctx context.Context, n uint64, tried *block) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.current != tried || e.next != nil {
		return nil
	}
	if tried.dry == 0 {
		tried.dry = e.backend.now()
	}
	e.waiting += n
	defer func() { e.waiting -= n }()
	t := e.taking
	if t == nil {
		t = e.begin(n)
	}
	if t == nil {
		return nil
	}
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prefetch begins to take the next block, unless there is one, or the window is full as far as is
// known. The caller holds mu.
func (e *entry) prefetch() {
	if e.next == nil && e.taking == nil && e.left() > 0 {
		e.begin(1)
	}
}

// left returns what is left of the limit, as far as is known. The caller holds mu.
func (e *entry) left() uint64 {
	if e.backend.now() >= e.known {
		return e.limit.Max // another window
	}
	return e.limit.Max - min(e.limit.Max, e.count)
}

// begin begins a take of at least need places. It returns nil, and closes the entry, if the backend is closed. The
// caller holds mu.
func (e *entry) begin(need uint64) *taking {
	b := e.backend
	n := blockSize(e.size, need, e.waiting, e.left(), b.maxLease-min(e.current.left(), b.maxLease-1))
	t := &taking{done: make(chan struct{})}
	if !b.run(func() { e.take(t, need, n) }) {
		e.closed = true
		return nil
	}
	e.taking = t
	if e.timer == nil {
		e.timer = time.AfterFunc(b.tendPause(), e.tend)
	}
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
		b.takes.Add(1)
		if err != nil || !w.Refused {
			b.taken.Add(n)
		}
		if err != nil {
			e.failed(t, n, b.failure(ctx, err))
			return
		}
		if less, fits := smaller(n, need, e.limit.Max, w.Count); w.Refused && fits {
			n = less
			continue
		}
		if nb := e.blockOf(n, w, sent); !e.taken(t, nb) {
			b.returnPlaces(e, nb, nb.size) // not in another goroutine, as there may be none after Close
		}
		return
	}
}

// failed ends a take of n that has failed.
func (e *entry) failed(t *taking, n uint64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(t.done)
	t.err = err
	e.backend.lost.Add(n) // for all that is known
	if e.taking == t {
		e.taking = nil
		e.size = 1
		e.known = 0
	}
}

// blockOf returns what the answer to a take of n says, which was sent at a time.
func (e *entry) blockOf(n uint64, w window.Window, sent time.Duration) *block {
	b := e.backend
	now := b.now()
	nb := &block{id: w.ID, expires: w.ExpiresAt, count: w.Count, over: now + w.Left}
	switch remembered := now + denialFor(e.limit.Scale, b.age); {
	case w.Refused && w.Left == 0: // the store has no room
		nb.kind = through
		nb.until = remembered
		return nb
	case w.Refused:
		nb.kind = refusal
		nb.until = min(remembered, nb.over)
		return nb
	}
	nb.size = n
	nb.first = w.Count - n
	nb.until = untilOf(sent, diesAt(sent, w.Left, e.precision), b.age)
	return nb
}

// taken ends a take with its block, which is the next one, or the current one if that is used up. It returns false if
// the blocks of the entry were dropped since it began.
func (e *entry) taken(t *taking, nb *block) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(t.done)
	if e.taking != t {
		return false
	}
	e.taking = nil
	e.count = nb.count
	e.known = nb.over
	if most := blockSize(e.size, 1, e.waiting, e.limit.Max-nb.first, e.backend.maxLease); nb.size > most {
		e.backend.giveBack(e, nb, nb.size-most) // places for callers that have left
		nb.size = most
	}
	now := e.backend.now()
	if nb.kind == places && now >= nb.until { // of no use so shortly before the end of the window
		e.discard(nb)
		nb = &block{kind: through, until: min(nb.over, now+e.backend.age), over: nb.over}
	}
	if e.current.usable(now) {
		e.next = nb
	} else {
		e.use(nb)
	}
	return true
}

// use makes a block the current one, gives back what is left of the old one, and chooses the size of later ones. There
// is no next one then. The caller holds mu.
func (e *entry) use(nb *block) {
	old := e.current
	now := e.backend.now()
	if old.size > 0 {
		took := cmp.Or(old.dry, now) - old.begun // the time for which callers waited since is that of the network
		e.size = sizeAfter(e.size, old.spent, took, goalFor(e.backend.age))
	}
	nb.begun = now
	e.current = nb
	e.next = nil
	e.discard(old)
}

// discard gives back what is left of a block. The caller holds mu.
func (e *entry) discard(b *block) {
	if left := b.retire(); left > 0 {
		e.backend.giveBack(e, b, left)
	}
}

// drop gives back all blocks, and closes the entry if that is to be.
func (e *entry) drop(closing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taking = nil
	e.known = 0
	e.clear()
	if closing {
		e.closed = true
		if e.timer != nil {
			e.timer.Stop()
		}
	}
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

// tend gives back blocks that are idle, again and again until the key is not hot any more.
func (e *entry) tend() {
	if !e.cooled() {
		return
	}
	e.backend.table.remove(e)
	e.drop(true)
}

// cooled gives back blocks that are idle, and reports whether the key is not hot any more. Otherwise, tend is called
// again.
func (e *entry) cooled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	if e.hits == e.tended {
		e.clear()
	}
	e.tended = e.hits
	e.rounds++
	if e.rounds == hotRounds {
		if e.hits < hotHits && e.taking == nil {
			return true
		}
		e.rounds = 0
		e.hits = 0
		e.tended = 0
	}
	e.timer.Reset(e.backend.tendPause())
	return false
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
