// Package ledger counts places in flight in the memory of a process. Processes claim them in exchanges, and lose them
// after a lease.
//
//	ledger.go  keys and names, their counts with what is held and wanted, and lists of that
//	claim.go   an exchange: reads beside rediswindow/lua/exchange.lua, which is the same on Redis
package ledger

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	// Forever is a lease that does not end.
	Forever time.Duration = 1 << 62
	// sweepPause is the least time between two searches for counts that are over.
	sweepPause = time.Second / 4
)

// Ledger is the places of any number of keys. It is safe for concurrent use.
type Ledger struct {
	// Birth is when the data set was created: for a lease after it, strict claims are granted nothing. By default, that
	// is over even for a lease of Forever, and if the clock goes back. It does not change when the Ledger is in use.
	Birth time.Duration

	now  func() time.Duration
	most int // counts

	mu      sync.Mutex    // guards what follows
	counts  map[id]*count // nil when it is closed
	sweepAt time.Duration // counts that are over are not looked for before then
	token   uint64        // of the last grant
}

type id struct{ key, name string }

// New returns an empty ledger for up to maxKeys keys and names at a time. Its time is that of now, which does
// not go back.
func New(maxKeys int, now func() time.Duration) *Ledger {
	return &Ledger{
		Birth: math.MinInt64 / 4 * 3, now: now, most: max(1, maxKeys), counts: map[id]*count{}, sweepAt: math.MinInt64,
	}
}

// Close ends the ledger: exchanges fail with [window.ErrClosed].
func (l *Ledger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts = nil
}

// full reports whether there is no room for another count, also without those of processes that have gone without a
// word. The mutex is held.
func (l *Ledger) full(now time.Duration) bool {
	if len(l.counts) >= l.most && now >= l.sweepAt {
		l.sweepAt = now + sweepPause
		for k, c := range l.counts {
			c.expire(now)
			if len(c.entries) == 0 {
				delete(l.counts, k)
			}
		}
	}
	return len(l.counts) >= l.most
}

// EachPlaces returns the places of some keys, or of all, in step after step. The mutex is not held between them, and
// those that have come meanwhile may be missing.
func (l *Ledger) EachPlaces(keys []string, step func(window.ListedPlaces) bool) {
	l.mu.Lock()
	var ids []id
	for k := range l.counts {
		if len(keys) == 0 || slices.Contains(keys, k.key) {
			ids = append(ids, k)
		}
	}
	l.mu.Unlock()
	for _, k := range ids {
		if p := l.places(k); len(p.ByProcess) > 0 && !step(p) {
			return
		}
	}
}

// places returns what is held and wanted of a key and name.
func (l *Ledger) places(k id) window.ListedPlaces {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := window.ListedPlaces{Key: k.key, Name: k.name}
	c := l.counts[k]
	if c == nil {
		return p
	}
	now := l.now()
	c.expire(now)
	for _, e := range c.entries {
		h := window.Holder{Process: e.process, Held: e.held, Waiting: e.waiting}
		if left := e.end - now; e.held > 0 && left <= window.MaxLease { // it is not Forever
			h.LeaseEnds = left
		}
		p.Used += e.held
		p.Waiting += e.waiting
		p.ByProcess = append(p.ByProcess, h)
	}
	slices.SortFunc(p.ByProcess, func(a, b window.Holder) int { return strings.Compare(a.Process, b.Process) })
	return p
}

// count is the places of a key and name.
type count struct {
	sum     uint64 // places held
	limit   uint64 // the largest Max under which places are held, since there were none
	entries []entry
}

// entry is a process that holds places, or waits for some. Those that wait are in line among the entries: those with a
// larger Max first, and of these first come, first served.
type entry struct {
	process   string
	held, seq uint64        // 0 if it holds none
	end       time.Duration // when it has lost them

	n, limit uint64        // of its first want; 0 if it does not wait
	waiting  uint64        // how many wants of it wait
	lineEnd  time.Duration // when it has lost its position
	wake     func()        // or nil
	woken    bool          // since its last claim
}

// over reports whether an entry is not needed any more.
func over(e entry) bool { return e.held == 0 && e.waiting == 0 }

// expire removes what is over: places, and positions in line.
func (c *count) expire(now time.Duration) {
	for i := range c.entries {
		e := &c.entries[i]
		if e.held > 0 && e.end <= now {
			c.sum -= e.held
			e.held = 0
			e.seq = 0
		}
		if e.waiting > 0 && e.lineEnd <= now {
			*e = entry{process: e.process, held: e.held, seq: e.seq, end: e.end}
		}
	}
	c.entries = slices.DeleteFunc(c.entries, over)
}

// noEntry is in place of an entry that there is not.
var noEntry entry

// head returns the first in line, or noEntry.
func (c *count) head() *entry {
	for i := range c.entries {
		if c.entries[i].waiting > 0 {
			return &c.entries[i]
		}
	}
	return &noEntry
}

// wake returns what wakes the first in line, if there is room for it, or nil. It is another one than the process that
// asks, and was not woken since it has asked.
func (c *count) wake(asking string) func() {
	e := c.head()
	if e == &noEntry || e.woken || e.process == asking || !c.fits(e.n, e.limit) {
		return nil
	}
	e.woken = true
	return e.wake
}

// fits reports whether n more places fit under a Max.
func (c *count) fits(n, limit uint64) bool { return n <= limit && c.sum <= limit-n }
