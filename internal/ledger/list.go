package ledger

import (
	"maps"
	"slices"

	"github.com/throttr-go/throttr/window"
)

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
	by := map[string]window.Holder{}
	for process, e := range c.entries {
		h := window.Holder{Process: process, Held: e.held}
		if left := e.end - now; left <= window.MaxLease { // it is not Forever
			h.LeaseEnds = left
		}
		by[process] = h
	}
	for _, w := range c.line {
		h := by[w.process]
		h.Process = w.process
		h.Waiting = w.waiting
		by[w.process] = h
	}
	p.Used = c.sum
	p.Waiting = c.line.waiting()
	for _, process := range slices.Sorted(maps.Keys(by)) {
		p.ByProcess = append(p.ByProcess, by[process])
	}
	return p
}
