package memory

import (
	"math"
	"time"
)

// cleanStep is the number of slots that a cleaning examines before it unlocks the shard's mutex.
const cleanStep = 128

// cleanLoop calls Clean every CleanPeriod until the backend is closed.
func (b *Backend) cleanLoop() {
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

// Clean removes the windows that have been over for KeyOlderThan, and returns their number. The
// backend calls it every CleanPeriod. If time is virtual, call it yourself.
func (b *Backend) Clean() int {
	n := 0
	for i := range b.shards {
		var c cursor
		for more := true; more; {
			var removed int
			var dropped []Dropped
			removed, dropped, more = b.shards[i].clean(b, &c)
			if len(dropped) > 0 {
				b.beforeDrop(dropped)
			}
			n += removed
		}
	}
	return n
}

// clean examines some of the shard's slots, from c on, and removes the windows that have been
// over for KeyOlderThan. It returns their number, and, if there is a BeforeDrop, the windows.
// After the last slot, more is false.
func (s *shard) clean(b *Backend, c *cursor) (removed int, dropped []Dropped, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(b)
	for range cleanStep {
		t, slot := c.next(&s.windows)
		if t == nil {
			s.compact()
			return removed, dropped, false
		}
		if t.tags[slot] == 0 {
			continue
		}
		e := t.at(slot).entry()
		if !b.over(&e, now) {
			continue
		}
		if t.at(slot).isShared() {
			s.drop(t, slot)
			continue
		}
		if b.beforeDrop != nil && e.start != math.MinInt64 { // see endWindow
			d := Dropped{Key: string(t.at(slot).key()), Scale: e.scale}
			s.describeDropped(b, &d.Window, &e, now)
			dropped = append(dropped, d)
		}
		s.drop(t, slot)
		removed++
	}
	return removed, dropped, true
}

// sweep removes all windows that are over, to make room, and reports whether there were any. The mutex
// is held.
func (s *shard) sweep(b *Backend, now int64) (removed bool) {
	s.firstEnd = math.MaxInt64
	s.nextSweep = now + int64(s.windows.len())*int64(sweepPause)
	var c cursor
	for t, slot := c.next(&s.windows); t != nil; t, slot = c.next(&s.windows) {
		if t.tags[slot] == 0 {
			continue
		}
		if e := t.at(slot).entry(); b.active(&e, now) {
			s.firstEnd = min(s.firstEnd, b.end(&e))
		} else {
			s.drop(t, slot)
			removed = true
		}
	}
	return removed
}
