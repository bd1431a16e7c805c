// Package ledger counts places in flight in the memory of a process. Processes claim them in exchanges, and lose them
// after a lease.
//
//	ledger.go  keys and names, and their counts
//	count.go   the entries of a count, and those of them that are in line
//	claim.go   an exchange: reads beside rediswindow/lua/exchange.lua, which is the same on Redis
//	list.go    what is held and wanted
package ledger

import (
	"math"
	"sync"
	"time"
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
