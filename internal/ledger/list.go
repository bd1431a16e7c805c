package ledger

import (
	"slices"
	"strings"

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
