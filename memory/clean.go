package memory

import (
	"math"
	"time"
	"weak"

	"github.com/throttr-go/throttr/window"
)

// cleanStep is the number of cells that a cleaning examines before it unlocks the shard's mutex.
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
		c := cleaning{shard: &b.shards[i]}
		for more := true; more; {
			c.dropped = nil
			more = c.step(b)
			if len(c.dropped) > 0 {
				b.beforeDrop(c.dropped)
			}
		}
		n += c.removed
	}
	return n
}

// cleaning is the cleaning of a shard.
type cleaning struct {
	shard   *shard
	table   *table // whose cells before next have been examined
	next    int
	removed int
	dropped []Dropped // if there is a BeforeDrop
}

// step examines some cells, and removes the windows that have been over for KeyOlderThan. It returns false
// after the last cell.
func (c *cleaning) step(b *Backend) (more bool) {
	s := c.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.table.Load(); c.table != t {
		c.table, c.next = t, 0
	}
	now, ref := s.now(b)
	c.table.all(c.next, c.next+cleanStep, func(r *record) bool {
		e, a := r.state(), r.algorithm()
		end, now := a.end(e), now+ref.shift(a)
		if a.active(e, now) || now >= end && minus(now, end) < b.keyOlderThan {
			return true
		}
		if r.kind&shared == 0 {
			if b.beforeDrop != nil && e.start != math.MinInt64 { // see shard.endWindow
				c.dropped = append(c.dropped, c.describe(r, now, ref))
			}
			c.removed++
		}
		s.drop(r)
		return true
	})
	if c.next += cleanStep; c.next < len(c.table.records) {
		return true
	}
	s.compact(b)
	return false
}

// describe describes a window that is over, at a time of its algorithm. Both mutexes are held.
func (c *cleaning) describe(r *record, now int64, ref *reference) Dropped {
	e, a := r.state(), r.algorithm()
	key, name := c.table.keyOf(r)
	end := a.end(e)
	return Dropped{
		Key: key, Limit: window.Limit{Name: name, Scale: e.scale, Algorithm: r.kind.algorithm()},
		Window: window.Window{
			Count: a.count(e, now), ID: a.id(e), Left: minus(end, now), ExpiresAt: ref.timeOf(int64(minus(end, ref.shift(a)))),
		},
	}
}

// sweep removes all windows that are over, to make room, and reports whether there were any. The mutex
// is held.
func (s *shard) sweep(now int64, ref *reference) (removed bool) {
	s.firstEnd = math.MaxInt64
	s.nextSweep = now + int64(s.windows)*int64(sweepPause)
	s.all(func(r *record) bool {
		if e, a := r.state(), r.algorithm(); a.active(e, now+ref.shift(a)) {
			s.mayEnd(a, e, ref)
		} else {
			s.drop(r)
			removed = true
		}
		return true
	})
	return removed
}
