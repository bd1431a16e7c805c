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
	"math/rand/v2"
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
	now  func() time.Duration
	most int // counts

	mu      sync.Mutex // guards what follows
	closed  bool
	dataSet uint64        // changes when the data is lost
	birth   time.Duration // of the data; for a lease after it, strict claims are granted nothing
	counts  map[id]*count
	sweepAt time.Duration // counts that are over are not looked for before then
	token   uint64        // of the last grant
}

type id struct{ key, name string }

// New returns an empty ledger for up to maxKeys keys and names at a time. Its time is that of now, which does
// not go back.
func New(maxKeys int, now func() time.Duration) *Ledger {
	return &Ledger{
		now: now, most: max(1, maxKeys), dataSet: rand.Uint64() | 1, birth: math.MinInt64 / 2,
		counts: map[id]*count{}, sweepAt: math.MinInt64,
	}
}

// Close ends the ledger: exchanges fail with [window.ErrClosed].
func (l *Ledger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// Restart empties the ledger, as a store does that has lost its data.
func (l *Ledger) Restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.counts)
	l.birth = l.now()
	l.dataSet = rand.Uint64() | 1
}

// count returns the count of a claim. There is no room for a new one if there are as many as may be, also without those
// of processes that have gone without a word. A claim that says nothing leaves none.
func (l *Ledger) count(claim *window.Claim, now time.Duration) (*count, error) {
	k := id{claim.Key, claim.Name}
	c := l.counts[k]
	switch {
	case l.closed:
		return nil, window.ErrClosed
	case c != nil:
		return c, nil
	case claim.Held == 0 && len(claim.Wants) == 0:
		return &count{}, nil
	}
	if len(l.counts) >= l.most && now >= l.sweepAt {
		l.sweepAt = now + sweepPause
		for k, c := range l.counts {
			c.expire(now)
			if len(c.entries) == 0 {
				delete(l.counts, k)
			}
		}
	}
	if len(l.counts) >= l.most {
		return nil, window.ErrFull
	}
	c = &count{}
	l.counts[k] = c
	return c, nil
}
