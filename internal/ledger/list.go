package ledger

import (
	"cmp"
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
	for _, e := range c.entries {
		if e.end <= now {
			continue
		}
		p.Used += e.held
		h := window.Holder{Process: e.process, Held: e.held, LeaseEnds: e.end - now}
		if h.LeaseEnds > window.MaxLease {
			h.LeaseEnds = 0 // it is Forever
		}
		p.ByProcess = append(p.ByProcess, h)
	}
	for _, w := range c.line {
		if w.end <= now {
			continue
		}
		at := slices.IndexFunc(p.ByProcess, func(h window.Holder) bool { return h.Process == w.process })
		if at < 0 {
			at = len(p.ByProcess)
			p.ByProcess = append(p.ByProcess, window.Holder{Process: w.process})
		}
		p.ByProcess[at].Waiting = w.waiting
	}
	p.Waiting = c.line.waiting(now)
	slices.SortFunc(p.ByProcess, func(a, b window.Holder) int { return cmp.Compare(a.Process, b.Process) })
	return p
}
