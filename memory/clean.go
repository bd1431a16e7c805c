package memory

import (
	"math"
	"time"
)

// clean removes windows that are over, every CleanPeriod, until the backend is closed.
func (b *Backend) clean() {
	if b.cleanPeriod <= 0 {
		return
	}
	tick := time.NewTicker(b.cleanPeriod)
	defer tick.Stop()
	for {
		select {
		case <-b.closed:
			return
		case <-tick.C:
			b.Clean()
		}
	}
}

// Clean removes the windows that have been over for KeyOlderThan, and returns how many. It
// is called every CleanPeriod; call it yourself where time is virtual.
func (b *Backend) Clean() int {
	n := 0
	for i := range b.shards {
		dropped, removed := b.shards[i].clean(b, b.beforeDrop != nil)
		if len(dropped) > 0 {
			b.beforeDrop(dropped)
		}
		n += removed
	}
	return n
}

// clean removes the shard's windows that have been over for KeyOlderThan, and returns
// them, if they are to be shown. A map that it leaves mostly empty is replaced by a smaller
// one: maps do not shrink.
func (s *shard) clean(b *Backend, show bool) (dropped []Dropped, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := b.instant()
	n = s.sweep(now.nanos, b.keyOlderThan, func(k id, e *entry) {
		if show {
			dropped = append(dropped, Dropped{Key: k.key, Scale: k.scale, Window: e.window(now, k.scale)})
		}
	})
	if n > 3*len(s.windows) {
		small := make(map[id]*entry, len(s.windows))
		for k, e := range s.windows {
			small[k] = e
		}
		s.windows = small
	}
	return dropped, n
}

// sweep removes all windows that have been over for age, shows each to f, and returns how
// many. The mutex is held.
func (s *shard) sweep(now int64, age time.Duration, f func(id, *entry)) int {
	before := len(s.windows)
	s.firstEnd = math.MaxInt64
	for k, e := range s.windows {
		end := e.end(k.scale)
		if e.active(now, k.scale) || now >= end && minus(now, end) < age {
			s.firstEnd = min(s.firstEnd, end)
			continue
		}
		delete(s.windows, k)
		f(k, e)
	}
	s.nextSweep = now + int64(before)*int64(sweepPause)
	return before - len(s.windows)
}
