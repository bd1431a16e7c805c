package memory

import "time"

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
		dropped, removed := b.shards[i].clean(b.nanos(), b.keyOlderThan, b.beforeDrop != nil)
		if len(dropped) > 0 {
			b.beforeDrop(dropped)
		}
		n += removed
	}
	return n
}

// clean removes what has been over for age, and returns it, if it is to be shown.
func (s *shard) clean(now int64, age time.Duration, show bool) (dropped []Dropped, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.windows {
		if now-e.end(k.scale) < int64(age) || e.active(now, k.scale) {
			continue
		}
		delete(s.windows, k)
		n++
		if show {
			dropped = append(dropped, Dropped{Key: k.key, Scale: k.scale, Window: e.window(now, k.scale)})
		}
	}
	return dropped, n
}
