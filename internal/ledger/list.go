package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/throttr-go/throttr/window"
)

// EachPlaces returns the places of some keys, or of all, in step after step: no mutex is held between them.
func (l *Ledger) EachPlaces(keys []string, step func([]window.ListedPlaces) bool) {
	now := l.now()
	for i := range l.shards {
		s := &l.shards[i]
		var all []window.ListedPlaces
		s.mu.Lock()
		for k, c := range s.counts {
			if len(keys) > 0 && !slices.Contains(keys, k.key) {
				continue
			}
			if p := c.listed(now); p.Used > 0 || p.Waiting > 0 {
				all = append(all, p)
			}
		}
		s.mu.Unlock()
		if !step(all) {
			return
		}
	}
}

// listed returns what is held, and who waits. The mutex is held.
func (c *count) listed(now time.Duration) window.ListedPlaces {
	p := window.ListedPlaces{Key: c.key, Name: c.name, Used: c.sum, Waiting: c.line.waiting(now)}
	own := window.Holder{Held: c.sum, Waiting: uint64(c.line.callers)}
	for process, e := range c.entries {
		own.Held -= e.held
		if e.end <= now {
			p.Used -= e.held
			continue
		}
		p.ByProcess = append(p.ByProcess, window.Holder{Process: process, Held: e.held, LeaseEnds: e.end - now})
	}
	for w := c.line.first; w != nil; w = w.next {
		if w.place != nil || w.end <= now {
			continue
		}
		i := slices.IndexFunc(p.ByProcess, func(h window.Holder) bool { return h.Process == w.process })
		if i < 0 {
			i = len(p.ByProcess)
			p.ByProcess = append(p.ByProcess, window.Holder{Process: w.process})
		}
		p.ByProcess[i].Waiting = w.waiting
	}
	if own != (window.Holder{}) {
		p.ByProcess = append(p.ByProcess, own)
	}
	slices.SortFunc(p.ByProcess, func(a, b window.Holder) int { return cmp.Compare(a.Process, b.Process) })
	return p
}
