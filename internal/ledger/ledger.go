// Package ledger counts places in flight in the memory of a process: those of processes, which claim them in
// exchanges and lose them after a lease, and those of callers of this process, which have no lease.
package ledger

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	shards = 64
	// idleCounts is how many counts of a shard there are at least before those that are idle are removed.
	idleCounts = 64
	// lineShare is the part of a lease after which a process that has not claimed loses its position in line.
	lineShare = 4
)

// Ledger is the places of any number of keys. It is safe for concurrent use.
type Ledger struct {
	now    func() time.Duration
	born   time.Duration // for a lease after it nothing is granted to processes
	most   int           // counts of a shard
	seed   maphash.Seed
	closed atomic.Bool
	shards [shards]shard
}

// shard has the counts of some keys. The mutex guards all of them, and what is in them.
type shard struct {
	mu     sync.Mutex
	index  int               // constant
	counts map[uint64]*count // by the hash of its id, in a list of those that have the same
	sweep  int               // idle counts are removed when there are so many counts
	refuse int               // so many new keys are refused before idle counts are looked for again
	token  uint64            // of the last grant
}

type id struct{ key, name string }

// count is the places of a key and name. It is idle if nobody holds one or waits for one.
type count struct {
	id           // constant
	next  *count // with the same hash
	shard *shard
	sum   uint64
	limit uint64 // the largest Max under which places are held, since there were none
	// processes holds those that hold places. None of them loses these before the first end.
	processes map[string]holding
	firstEnd  time.Duration
	line      line
}

// holding is what a process holds.
type holding struct {
	held, seq uint64
	end       time.Duration
}

// New returns an empty ledger for up to maxKeys keys and names at a time. Its time is that of now, which does
// not go back.
func New(maxKeys int, now func() time.Duration) *Ledger {
	l := &Ledger{now: now, born: math.MinInt64 / 2, most: max(1, maxKeys/shards), seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].index, l.shards[i].sweep = i, idleCounts
	}
	return l
}

// Close ends the ledger: calls fail with [window.ErrClosed].
func (l *Ledger) Close() { l.closed.Store(true) }

// Restart empties the ledger, as a store does that has lost its data. For a lease from now on it grants nothing
// to processes.
func (l *Ledger) Restart() {
	for i := range l.shards {
		l.shards[i].counts = nil
	}
	l.born = l.now()
}

// hash returns the hash of a key and name, and their shard.
func (l *Ledger) hash(k id) (uint64, *shard) {
	hash := maphash.String(l.seed, k.key)
	if k.name != "" {
		hash = bits.RotateLeft64(hash, 1) ^ maphash.String(l.seed, k.name)
	}
	return hash, &l.shards[hash%shards]
}

// find returns the count of a key and name, or nil. The mutex is held.
func (s *shard) find(hash uint64, k id) *count {
	c := s.counts[hash]
	for c != nil && c.id != k {
		c = c.next
	}
	return c
}

// count returns the count of a key and name, and makes it if there is none. The mutex is held.
func (l *Ledger) count(s *shard, hash uint64, k id) (*count, error) {
	if c := s.find(hash, k); c != nil {
		return c, nil
	}
	if len(s.counts) >= min(s.sweep, l.most) {
		if s.refuse > 0 {
			s.refuse--
			return nil, window.ErrFull
		}
		now := l.now()
		for hash := range s.counts {
			s.clean(hash, now)
		}
		if len(s.counts) >= l.most {
			s.refuse = l.most / 8
			return nil, window.ErrFull
		}
		s.sweep = max(2*len(s.counts), idleCounts)
	}
	c := &count{id: k, next: s.counts[hash], shard: s, firstEnd: math.MaxInt64}
	if s.counts == nil {
		s.counts = map[uint64]*count{}
	}
	s.counts[hash] = c
	return c, nil
}

// clean removes the counts of a hash that are idle.
func (s *shard) clean(hash uint64, now time.Duration) {
	var kept *count
	for c := s.counts[hash]; c != nil; {
		next := c.next
		if !c.idle(now) {
			c.next, kept = kept, c
		}
		c = next
	}
	if s.counts[hash] = kept; kept == nil {
		delete(s.counts, hash)
	}
}

// time returns the time, or 0 if nothing of the count depends on it: then no process holds a place, or is first in
// line.
func (c *count) time(l *Ledger) time.Duration {
	if len(c.processes) == 0 && (c.line.first == nil || c.line.first.place != nil) {
		return 0
	}
	return l.now()
}

// idle reports whether nobody holds places or waits for one.
func (c *count) idle(now time.Duration) bool {
	c.expire(now)
	c.line.drop(now)
	return c.sum == 0 && c.line.first == nil
}

// expire removes what processes hold whose lease is over.
func (c *count) expire(now time.Duration) {
	if now < c.firstEnd {
		return
	}
	c.firstEnd = math.MaxInt64
	for process, e := range c.processes {
		if e.end <= now {
			c.sum -= e.held
			delete(c.processes, process)
			continue
		}
		c.firstEnd = min(c.firstEnd, e.end)
	}
}

// fits reports whether n more places fit under a Max.
func (c *count) fits(n, limit uint64) bool { return n <= limit && c.sum <= limit-n }

// serve grants places to callers that are first in line. If a process is first, and its want fits, it returns
// what wakes that.
func (c *count) serve(now time.Duration) (wake func()) {
	for {
		c.line.drop(now)
		w := c.line.first
		if w == nil || !c.fits(w.n, w.limit) {
			return nil
		}
		if w.place == nil {
			if w.woken {
				return nil
			}
			w.woken = true
			return w.wake
		}
		c.line.remove(w)
		w.place.waited()
		c.grant(w.place, w.n)
		close(w.ready)
	}
}
