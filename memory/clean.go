package memory

import (
	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// clean makes the cleaning that is due, and plans the next one, until the backend is closed.
func (b *Backend) clean() {
	b.cleaning <- struct{}{}
	defer func() { <-b.cleaning }()
	if !b.closed {
		b.Clean()
		b.cleaner.Reset(b.cleanPeriod)
	}
}

// Clean removes the windows that have been over for KeyOlderThan, and returns their number. The
// backend calls it every CleanPeriod. If time is virtual, call it yourself.
func (b *Backend) Clean() (removed int) {
	for i := range b.shards {
		s := &b.shards[i]
		var dropped []window.Listed // if there is a BeforeDrop
		b.walk(s, func(r *row, at algorithm.Time) {
			left := r.left(at)
			switch {
			case left > 0:
				times := r.Log.Times()
				r.Log.Shrink()
				s.times += r.Log.Times() - times
				return
			case -left < b.keyOlderThan:
				return
			case b.beforeDrop != nil:
				dropped = append(dropped, r.listed(at))
			}
			s.remove(r)
			removed++
		}, func() bool {
			if len(dropped) > 0 {
				b.beforeDrop(dropped)
				dropped = nil
			}
			return true
		})
	}
	return removed
}
