package memory

import (
	"math"
	"time"
)

// cleanStep is how many windows a cleaning looks at before it lets others have the shard.
const cleanStep = 128

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
		var from cursor
		for more := true; more; {
			var removed int
			var dropped []Dropped
			removed, dropped, more = b.shards[i].clean(b, &from)
			if len(dropped) > 0 {
				b.beforeDrop(dropped)
			}
			n += removed
		}
	}
	return n
}

// clean looks at some of the shard's windows, from a cursor on, removes those that have been
// over for KeyOlderThan, and returns how many, and themselves, if they are to be shown. After
// the last one, more is false.
func (s *shard) clean(b *Backend, from *cursor) (removed int, dropped []Dropped, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(b)
	for range cleanStep {
		r, at := s.windows.next(from)
		if r == nil {
			s.windows.compact()
			return removed, dropped, false
		}
		e := r.entry()
		if e.scale == 0 || !e.over(now, b.keyOlderThan) {
			continue
		}
		if b.beforeDrop != nil {
			d := Dropped{Key: string(r.key()), Scale: e.scale}
			s.tell(&d.Window, e, now)
			dropped = append(dropped, d)
		}
		s.drop(b, r, at)
		removed++
	}
	return removed, dropped, true
}

// sweep removes all windows that are over, to make room, and returns how many. The mutex is
// held.
func (s *shard) sweep(b *Backend, now int64) int {
	before := s.windows.n
	s.firstEnd = math.MaxInt64
	s.nextSweep = now + int64(before)*int64(sweepPause)
	var c cursor
	for r, at := s.windows.next(&c); r != nil; r, at = s.windows.next(&c) {
		switch e := r.entry(); {
		case e.scale == 0:
		case e.active(now):
			s.firstEnd = min(s.firstEnd, e.end())
		default:
			s.drop(b, r, at)
		}
	}
	return before - s.windows.n
}
