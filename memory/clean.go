package memory

import (
	"math"
	"time"
)

// cleanStep is how many places a cleaning looks at before it lets others have the shard.
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

// clean looks at some of the shard's places, from a cursor on, removes windows that have been
// over for KeyOlderThan, and returns how many, and themselves, if they are to be shown. After
// the last one, more is false.
func (s *shard) clean(b *Backend, from *cursor) (removed int, dropped []Dropped, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(b)
	for range cleanStep {
		t, i := from.next(&s.windows)
		if t == nil {
			s.windows.compact()
			return removed, dropped, false
		}
		if t.tags[i] == 0 {
			continue
		}
		e := t.at(i).entry()
		if !e.over(now, b.keyOlderThan) {
			continue
		}
		if b.beforeDrop != nil {
			d := Dropped{Key: string(t.at(i).key()), Scale: e.scale}
			s.tell(&d.Window, e, now)
			dropped = append(dropped, d)
		}
		t.remove(i)
		removed++
	}
	return removed, dropped, true
}

// sweep removes all windows that are over, to make room, and returns how many. The mutex is
// held.
func (s *shard) sweep(now int64) int {
	before := s.windows.len()
	s.firstEnd = math.MaxInt64
	s.nextSweep = now + int64(before)*int64(sweepPause)
	var c cursor
	for t, i := c.next(&s.windows); t != nil; t, i = c.next(&s.windows) {
		if t.tags[i] == 0 {
			continue
		}
		if e := t.at(i).entry(); e.active(now) {
			s.firstEnd = min(s.firstEnd, e.end())
		} else {
			t.remove(i)
		}
	}
	return before - s.windows.len()
}
