package memory

import (
	"math"
	"time"
	"weak"

	"github.com/throttr-go/throttr/window"
)

// cleanStep is the number of slots that a cleaning examines before it unlocks the shard's mutex.
const cleanStep = 128

// startCleaner makes Clean be called every CleanPeriod, until the backend is closed. The timer does not
// refer to the backend, so that it ends, too, when nobody else does.
func (b *Backend) startCleaner() {
	b.cleaning <- struct{}{}
	defer func() { <-b.cleaning }()
	weakly := weak.Make(b)
	b.cleaner = time.AfterFunc(b.cleanPeriod, func() {
		if b := weakly.Value(); b != nil {
			b.clean()
		}
	})
}

func (b *Backend) clean() {
	b.cleaning <- struct{}{}
	defer func() { <-b.cleaning }()
	if !b.closed {
		b.Clean()
		b.cleaner.Reset(b.cleanPeriod)
	}
}

// stopCleaner waits for the end of a cleaning, and prevents the next one.
func (b *Backend) stopCleaner() {
	b.cleaning <- struct{}{}
	defer func() { <-b.cleaning }()
	b.closed = true
	b.cleaner.Stop()
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
		r := t.at(slot)
		e, a := r.entry(), r.algorithm()
		end, now := a.end(e), now+s.shift(a)
		if a.active(e, now) || now >= end && minus(now, end) < b.keyOlderThan {
			continue
		}
		if r.isShared() {
			s.drop(t, slot)
			continue
		}
		if b.beforeDrop != nil && e.start != math.MinInt64 { // see shard.endWindow
			dropped = append(dropped, s.dropped(r, now))
		}
		s.drop(t, slot)
		removed++
	}
	return removed, dropped, true
}

// dropped describes a window that is over, at a time of its algorithm. The mutex is held.
func (s *shard) dropped(r record, now int64) Dropped {
	e, a := r.entry(), r.algorithm()
	key, name := r.text()
	end := a.end(e)
	return Dropped{
		Key: string(key), Limit: window.Limit{Name: string(name), Scale: e.scale, Algorithm: r.kind().algorithm()},
		Window: window.Window{
			Count: a.count(e, now), ID: a.id(e), Left: minus(end, now), ExpiresAt: s.timeOf(int64(minus(end, s.shift(a)))),
		},
	}
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
		r := t.at(slot)
		if e, a := r.entry(), r.algorithm(); a.active(e, now+s.shift(a)) {
			s.mayEnd(a, e)
		} else {
			s.drop(t, slot)
			removed = true
		}
	}
	return removed
}
