package memory

import (
	"time"
	"weak"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// lookStep is how many cells are looked at before the shard's mutex is unlocked.
const lookStep = 128

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
func (b *Backend) Clean() (removed int) {
	for i := range b.shards {
		s := &b.shards[i]
		var dropped []window.Listed // if there is a BeforeDrop
		for range s.walk(b, func(r *record, at algorithm.Time) {
			left := r.left(at)
			switch {
			case left > 0:
				before := r.Log.Times()
				r.Log.Shrink()
				s.times += r.Log.Times() - before
				return
			case -left < b.keyOlderThan:
				return
			case b.beforeDrop != nil:
				dropped = append(dropped, b.listed(r, at, r.over(left)))
			}
			s.remove(r)
			removed++
		}) {
			if len(dropped) > 0 {
				b.beforeDrop(dropped)
				dropped = nil
			}
		}
	}
	return removed
}

// walk calls look with each record, the mutex locked, and yields without it after those of every lookStep cells. Look
// may remove the record. Others may add and remove records in between: no record is missed that is there all the time,
// and one may be seen twice.
func (s *shard) walk(b *Backend, look func(r *record, at algorithm.Time)) func(yield func() bool) {
	return func(yield func() bool) {
		for hash, more := uint64(0), true; more; {
			s.mu.Lock()
			at := b.clock.now()
			hash = s.visit(hash, lookStep, func(r *record) { look(r, at) })
			s.mu.Unlock()
			more = yield() && hash != 0
		}
	}
}
