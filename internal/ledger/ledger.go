// Package ledger counts places in flight in the memory of a process: those of processes, which claim them in
// exchanges and lose them after a lease, and those of callers of this process, which have no lease.
//
//	ledger.go  keys and names, and their counts
//	claim.go   an exchange: reads beside rediswindow/lua/exchange.lua, which is the same on Redis
//	line.go    those who wait
//	place.go   places of this process
package ledger

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	shards = 64
	// sweepPause is the least time between two searches for counts that are over.
	sweepPause = time.Second / 4
	// lineShare is the part of a lease after which a process that has not claimed loses its position in line.
	lineShare = 4
	// never is later than all times.
	never time.Duration = math.MaxInt64
)

// Ledger is the places of any number of keys. It is safe for concurrent use.
type Ledger struct {
	now     func() time.Duration
	dataSet uint64        // changes when the data is lost
	birth   time.Duration // of the data; for a lease after it, strict claims are granted nothing
	most    int64         // counts
	counts  atomic.Int64
	sweepAt atomic.Int64 // counts that are over are not looked for before then
	seed    maphash.Seed
	closed  atomic.Bool
	shards  [shards]shard
}

// shard has the counts of some keys. The mutex guards all of them, and what is in them.
type shard struct {
	mu     sync.Mutex
	index  int // constant
	counts map[id]*count
	spare  *count   // one that was removed, for the next key
	token  uint64   // of the last grant
	wakes  []func() // are called when the mutex is unlocked
}

// unlock unlocks the mutex, and wakes processes that are first in line.
func (s *shard) unlock() {
	wakes := s.wakes
	s.wakes = nil
	s.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

type id struct{ key, name string }

// count is the places of a key and name. There is none for those of which nobody holds a place or waits for one.
type count struct {
	id
	shard   *shard // constant
	sum     uint64 // places held
	limit   uint64 // the largest Max under which places are held, since there were none
	entries map[string]entry
	first   time.Duration // no entry is over before then
	line    line
	timer   *time.Timer   // settles the count
	timerAt time.Duration // when it does
}

// entry is what a process holds.
type entry struct {
	held, seq uint64
	end       time.Duration
}

// New returns an empty ledger for up to maxKeys keys and names at a time. Its time is that of now, which does
// not go back.
func New(maxKeys int, now func() time.Duration) *Ledger {
	l := &Ledger{now: now, dataSet: rand.Uint64() | 1, birth: math.MinInt64 / 2, most: int64(max(1, maxKeys)), seed: maphash.MakeSeed()}
	l.sweepAt.Store(math.MinInt64)
	for i := range l.shards {
		l.shards[i].index = i
		l.shards[i].counts = map[id]*count{}
	}
	return l
}

// Close ends the ledger: calls fail with [window.ErrClosed].
func (l *Ledger) Close() { l.closed.Store(true) }

// Restart empties the ledger, as a store does that has lost its data. It holds the mutexes of all shards, which guard birth
// and dataSet, too.
func (l *Ledger) Restart() {
	for i := range l.shards {
		l.shards[i].mu.Lock()
		defer l.shards[i].mu.Unlock()
	}
	for i := range l.shards {
		l.counts.Add(-int64(len(l.shards[i].counts)))
		clear(l.shards[i].counts)
	}
	l.birth = l.now()
	l.dataSet = rand.Uint64() | 1
}

// shard returns the shard of a key.
func (l *Ledger) shard(key string) *shard { return &l.shards[maphash.String(l.seed, key)%shards] }

// count returns the count of a key and name, and makes it if there is none. The mutex of the shard is held, and may be
// unlocked meanwhile.
func (l *Ledger) count(s *shard, k id) (*count, error) {
	if c := s.counts[k]; c != nil {
		return c, nil
	}
	if l.counts.Add(1) > l.most {
		s.mu.Unlock()
		l.sweep()
		s.mu.Lock()
		if l.counts.Load() > l.most {
			l.counts.Add(-1)
			return nil, window.ErrFull
		}
		if c := s.counts[k]; c != nil {
			l.counts.Add(-1)
			return c, nil
		}
	}
	c := s.spare
	s.spare = nil
	if c == nil {
		c = &count{}
	}
	*c = count{id: k, shard: s, first: never, timerAt: never}
	s.counts[k] = c
	return c, nil
}

// sweep removes counts of processes that have gone without a word.
func (l *Ledger) sweep() {
	now := l.now()
	at := l.sweepAt.Load()
	if int64(now) < at || !l.sweepAt.CompareAndSwap(at, int64(now+sweepPause)) {
		return
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, c := range s.counts {
			l.settle(c, now)
		}
		s.unlock()
	}
}

// remove removes a count that is not needed any more. The mutex is held.
func (l *Ledger) remove(c *count) {
	if c.sum > 0 || c.line.first != nil || c.shard.counts[c.id] != c {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	delete(c.shard.counts, c.id)
	c.shard.spare = c
	l.counts.Add(-1)
}

// expire removes entries that are over.
func (c *count) expire(now time.Duration) {
	if now < c.first {
		return
	}
	c.first = never
	for process, e := range c.entries {
		if e.end <= now {
			c.sum -= e.held
			delete(c.entries, process)
			continue
		}
		c.first = min(c.first, e.end)
	}
}

// fits reports whether n more places fit under a Max.
func (c *count) fits(n, limit uint64) bool { return n <= limit && c.sum <= limit-n }

// settle does what time has brought: it removes what is over, and serves the line. The mutex is held.
func (l *Ledger) settle(c *count, now time.Duration) {
	c.expire(now)
	c.serve(now, "")
	l.watch(c, now)
	l.remove(c)
}

// serve grants places to callers that are first in line. If a process is, other than the one that is asking, and there is
// room for it, serve wakes it.
func (c *count) serve(now time.Duration, asking string) {
	for {
		c.line.drop(now)
		w := c.line.first
		switch {
		case w == nil || !c.fits(w.n, w.limit):
			return
		case w.place != nil:
			c.line.remove(w)
			w.place.waited()
			c.grant(w.place, w.n)
			close(w.ready)
		case w.woken || w.process == asking:
			return
		default:
			w.woken = true
			if w.wake != nil {
				c.shard.wakes = append(c.shard.wakes, w.wake)
			}
			return
		}
	}
}

// watch sets the timer if a caller waits, who does not ask again as processes do, for something that ends by itself.
func (l *Ledger) watch(c *count, now time.Duration) {
	if c.line.callers == 0 {
		return
	}
	at := c.first
	if w := c.line.first; w.place == nil {
		at = min(at, w.end)
	}
	if at >= c.timerAt {
		return
	}
	c.timerAt = at
	if c.timer == nil {
		c.timer = time.AfterFunc(at-now, func() {
			c.shard.mu.Lock()
			defer c.shard.unlock()
			c.timerAt = never
			l.settle(c, l.now())
		})
		return
	}
	c.timer.Reset(at - now)
}
