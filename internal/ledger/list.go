package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/throttr-go/throttr/window"
)

// pageSize is how many counts are listed while the mutex is held.
const pageSize = 1000

// EachPlaces returns the places of some keys, or of all, in step after step: the mutex is not held between them.
func (l *Ledger) EachPlaces(keys []string, step func([]window.ListedPlaces) bool) {
	for page := range slices.Chunk(l.ids(keys), pageSize) {
		if !step(l.places(page)) {
			return
		}
	}
}

// ids returns the counts of some keys, or of all.
func (l *Ledger) ids(keys []string) (all []id) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.counts {
		if len(keys) == 0 || slices.Contains(keys, k.key) {
			all = append(all, k)
		}
	}
	return all
}

// places returns what is held and wanted of counts.
func (l *Ledger) places(ids []id) (all []window.ListedPlaces) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for _, k := range ids {
		c := l.counts[k]
		if c == nil {
			continue
		}
		if p := c.listed(k, now); p.Used > 0 || p.Waiting > 0 {
			all = append(all, p)
		}
	}
	return all
}

// listed returns what is held, and who waits.
func (c *count) listed(k id, now time.Duration) window.ListedPlaces {
	p := window.ListedPlaces{Key: k.key, Name: k.name, Waiting: c.line.waiting(now)}
	holders := map[string]window.Holder{}
	for _, e := range c.entries {
		if e.end <= now {
			continue
		}
		p.Used += e.held
		h := window.Holder{Process: e.process, Held: e.held, LeaseEnds: e.end - now}
		if h.LeaseEnds > window.MaxLease {
			h.LeaseEnds = 0 // it is Forever
		}
		holders[e.process] = h
	}
	for _, w := range c.line {
		if w.end > now {
			h := holders[w.process]
			h.Process = w.process
			h.Waiting = w.waiting
			holders[w.process] = h
		}
	}
	p.ByProcess = slices.SortedFunc(maps.Values(holders), func(a, b window.Holder) int { return cmp.Compare(a.Process, b.Process) })
	return p
}
