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
	known   time.Duration // until when count is of the window that is open
	closed  bool          // hits go to the backend

	timer  *time.Timer // of tend; nil until the first take
	hits   uint64      // since tend has last decided whether the key is hot
	tended uint64      // of these, when tend was last called
	rounds int         // calls of tend since then
}

// taking is a take of a block that is under way: callers wait for it, or it was begun ahead of them.
type taking struct {
	done chan struct{} // is closed when it has ended
	err  error         // why it has failed; valid then
}

// verdict is what an entry says to a caller.
type verdict uint8

const (
	again     verdict = iota // the current block can't tell: wait for another one
	byBlock                  // granted or refused by a block
	toBackend                // the caller asks the backend
)

func newEntry(b *Backend, key string, l window.Limit, precision time.Duration) *entry {
	return &entry{backend: b, key: key, limit: l, precision: precision, size: 1, current: &block{}}
}

// counts reports whether e has places of the count of a limit. Limits with a Calendar have no entries.
func (e *entry) counts(l *window.Limit) bool {
	return e.limit.Scale == l.Scale && e.limit.Algorithm == l.Algorithm && e.limit.Name == l.Name
}

// mostWaits is for how many takes a call waits at most.
const mostWaits = 8

// spend takes n places of the current block, or of one that it waits for. If other callers have taken all places of the
// blocks that it has waited for, the call goes to the backend.
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

// try takes n places of the current block. If the verdict is again, tried is the block that could not decide.
func (e *entry) try(n uint64) (w window.Window, v verdict, tried *block) {
	b := e.backend
	tried, place, taken := e.grab(n)
	if tried == nil {
		return w, toBackend, nil
	}
	if taken && b.stop != nil {
		b.stop()
	}
	now := b.now() // not before the places are taken: the process may stop in between
	switch {
	case taken && now < tried.until:
		return tried.window(place, now), byBlock, nil
	case taken:
		e.expire(tried, n)
	case now >= tried.until: // whatever it has said
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

// grab takes n places of the current block, which is the next one if the one before has too few. It returns the block,
// nil if the entry is closed, and the last of the places, counted from the start of the window.
func (e *entry) grab(n uint64) (from *block, place uint64, taken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, 0, false
	}
	e.hits++
	if e.next != nil && !e.current.has(n) {
		e.use(e.next)
	}
	if !e.current.has(n) {
		return e.current, 0, false
	}
	place, nearEnd := e.current.take(n)
	if nearEnd {
		e.prefetch()
	}
	return e.current, place, true
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
	e.mu.Unlock() // while it waits
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
	if !b.run(func() { e.fetch(t, need, n) }) {
		e.closed = true
		return nil
	}
	e.taking = t
	if e.timer == nil {
		e.timer = time.AfterFunc(b.tendPause(), e.tend)
	}
	return t
}

// fetch takes n places, or fewer if these are refused, and makes a block of them.
func (e *entry) fetch(t *taking, need, n uint64) {
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
			e.fail(t, n, b.failure(ctx, err))
			return
		}
		if less, fits := smaller(n, need, e.limit.Max, w.Count); w.Refused && fits {
			n = less
			continue
		}
		if nb := e.blockOf(n, w, sent); !e.accept(t, nb) {
			b.returnPlaces(e, nb, nb.size) // not in another goroutine, as there may be none after Close
		}
		return
	}
}

// fail ends a take of n that has failed.
func (e *entry) fail(t *taking, n uint64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(t.done)
	t.err = err
	e.backend.lost.Add(n) // it may have been counted
	if e.taking == t {
		e.taking = nil
		e.size = 1
		e.known = 0
	}
}

// blockOf returns the block that the answer to a take of n makes. The take was sent at the given time.
func (e *entry) blockOf(n uint64, w window.Window, sent time.Duration) *block {
	b := e.backend
	now := b.now()
	nb := &block{id: w.ID, expires: w.ExpiresAt, count: w.Count, over: now + w.Left}
	remembered := now + denialFor(e.limit.Scale, b.age)
	switch {
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

// accept ends a take with its block, which becomes the next one, or the current one if that is used up. It returns
// false if the blocks of the entry were dropped since the take began: then the caller gives this one back.
func (e *entry) accept(t *taking, nb *block) bool {
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

// use makes a block the current one, gives back what is left of the old one, and chooses the size of later ones. After
// it, there is no next one. The caller holds mu.
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

// drop gives back all blocks, also that of a take that is under way. If closing, it also closes the entry.
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
