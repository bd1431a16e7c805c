package ledger

import (
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Owner is who holds places without a lease. Make one with [Ledger.Owner].
type Owner struct {
	ledger     *Ledger
	maxWaiting int64
	waiting    atomic.Int64
	shards     [shards]owned // each is guarded by the mutex of the ledger's
}

// owned is the places of an owner in a shard that are held or waited for.
type owned struct {
	first  *Place
	closed bool
}

// Owner returns an owner that holds nothing. So many of its places can wait at a time.
func (l *Ledger) Owner(maxWaiting int) *Owner {
	return &Owner{ledger: l, maxWaiting: int64(maxWaiting)}
}

// Waiting returns how many places wait.
func (o *Owner) Waiting() int { return int(o.waiting.Load()) }

// Place is n places of a key and name. A Place is used once. The mutex of its count's shard guards what is not
// constant after Take.
type Place struct {
	Holder any    // of the caller
	Used   uint64 // places of the key and name when the take was decided, or had to wait

	owner      *Owner
	count      *count
	waiter     *waiter // if it waits
	next, prev *Place  // of the owner in the shard
	n          uint64
	token      uint64
	held       bool
}

// Take takes n places, at most limit. If they do not fit, and wait is set, the Place waits in line, until the
// channel that is returned is closed. The error is [window.ErrFull], [window.ErrOverloaded] or [window.ErrClosed].
func (o *Owner) Take(p *Place, key, name string, n, limit uint64, wait bool) (granted bool, ready <-chan struct{}, err error) {
	s := o.ledger.shard(key)
	s.mu.Lock()
	defer s.unlock()
	c, err := o.ledger.count(s, id{key, name})
	if err != nil {
		return false, nil, err
	}
	defer o.ledger.remove(c) // unless it is needed
	mine := &o.shards[s.index]
	if mine.closed || o.ledger.closed.Load() {
		return false, nil, window.ErrClosed
	}
	now := c.time(o.ledger)
	c.expire(now)
	c.serve(now, "")
	fits := c.fits(n+c.line.reserved("", limit), limit)
	if p.Used = c.sum; fits {
		p.Used += n
	}
	switch {
	case fits:
	case !wait:
		return false, nil, nil
	case o.waiting.Add(1) > o.maxWaiting:
		o.waiting.Add(-1)
		return false, nil, window.ErrOverloaded
	}
	p.owner = o
	p.count = c
	p.n = n
	if p.next = mine.first; p.next != nil {
		p.next.prev = p
	}
	mine.first = p
	if fits {
		c.grant(p, n)
		return true, nil, nil
	}
	p.waiter = &waiter{n: n, limit: limit, place: p, ready: make(chan struct{})}
	c.line.add(p.waiter)
	o.ledger.watch(c, now)
	return false, p.waiter.ready, nil
}

// time returns the time, or 0 if nothing of the count depends on it: then no process holds a place, or waits for one.
func (c *count) time(l *Ledger) time.Duration {
	if len(c.entries) == 0 && c.line.processes == 0 {
		return 0
	}
	return l.now()
}

// grant lets a place be held. The mutex is held.
func (c *count) grant(p *Place, n uint64) {
	c.sum += n
	c.shard.token++
	p.token, p.held = c.shard.token, true
}

// waited notes that the place does not wait any more. The mutex is held.
func (p *Place) waited() {
	p.waiter = nil
	p.owner.waiting.Add(-1)
}

// Held reports whether the place is held.
func (p *Place) Held() bool {
	p.count.shard.mu.Lock()
	defer p.count.shard.mu.Unlock()
	return p.held
}

// Token returns a number that is larger than those of all grants of the key and name before. The place was
// granted.
func (p *Place) Token() uint64 { return p.token }

// Release gives a place back, or ends the wait for it. It returns false if that was done before.
func (p *Place) Release() bool {
	s := p.count.shard
	s.mu.Lock()
	defer s.unlock()
	return p.release()
}

// release is Release with the mutex held.
func (p *Place) release() bool {
	c := p.count
	switch {
	case p.held:
		p.held = false
		c.sum -= p.n
	case p.waiter != nil:
		c.line.remove(p.waiter)
		p.waited()
	default:
		return false
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		p.owner.shards[c.shard.index].first = p.next
	}
	p.owner.ledger.settle(c, c.time(p.owner.ledger))
	return true
}

// Close releases all places of the owner, and ends the waits for them. Further takes fail. It calls ending with
// each that is held, before others can have it.
func (o *Owner) Close(ending func(*Place)) {
	for i := range o.shards {
		for {
			p := o.close(i)
			if p == nil {
				break
			}
			ending(p)
			p.Release()
		}
	}
}

// close closes the places of a shard. It returns one that is held.
func (o *Owner) close(i int) (p *Place) {
	s, mine := &o.ledger.shards[i], &o.shards[i]
	s.mu.Lock()
	defer s.unlock()
	mine.closed = true
	for p = mine.first; p != nil && p.waiter != nil; p = mine.first {
		ready := p.waiter.ready
		p.release()
		close(ready)
	}
	return p
}

// Held returns how many places the owner holds, and of how many keys and names it holds or wants places.
func (o *Owner) Held() (held uint64, keys int) {
	for i := range o.shards {
		s := &o.ledger.shards[i]
		s.mu.Lock()
		counts := map[*count]bool{}
		for p := o.shards[i].first; p != nil; p = p.next {
			counts[p.count] = true
			if p.held {
				held += p.n
			}
		}
		s.mu.Unlock()
		keys += len(counts)
	}
	return held, keys
}
