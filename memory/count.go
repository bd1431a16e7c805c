package memory

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/internal/shortcut"
	"github.com/throttr-go/throttr/window"
)

func init() {
	shortcut.Of = func(b window.Backend) shortcut.Counter {
		if m, ok := b.(*Backend); ok {
			return (*counter)(m)
		}
		return nil
	}
}

// counter is a Backend that counts hits, for itself and for a RateLimit.
type counter Backend

// Count implements [shortcut.Counter]. It is what every hit waits for. Where the clock is
// read, that is half of it, and it is read under the mutex, so that the times are in the
// order of the counts. The mutex is not left to a defer, which takes 2 ns.
//
// The clock is not read where it would change nothing: for a hit within the limit, of a
// window that had ample time left a moment ago. Such a hit is allowed whatever the time.
// Should the pulse be so late that the window is over by now, then the hit is one of those
// that the window had left: there are no more of them, and nobody is denied.
func (c *counter) Count(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (
	n uint64, passed, left time.Duration, end time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, 0, end, err
	}
	b := (*Backend)(c)
	s, k := b.locate(key, scale)
	s.mu.Lock()
	var e entry
	r := s.find(k)
	if r != nil {
		e = r.entry()
	}
	now := s.timeOf(b, &e, limit, increment)
	if e.active(now) {
		e.add(increment, now)
		r.set(e)
	} else if e, err = b.open(s, k, r, increment, now); err != nil {
		s.mu.Unlock()
		return 0, 0, 0, end, err
	}
	ends := e.end()
	if ends != s.told.nanos {
		s.told = instant{s.anchor.time.Add(minus(ends, s.anchor.nanos)), ends}
	}
	end = s.told.time
	s.mu.Unlock()
	return e.count, minus(now, e.start), minus(ends, now), end, nil
}

// timeOf returns the time of a hit on an entry's window, or that of a moment ago, if that
// will do: see [counter.Count]. If there is no window, the entry is zero. The mutex is held.
func (s *shard) timeOf(b *Backend, e *entry, limit, increment uint64) int64 {
	if e.scale == 0 || e.count >= limit || increment > limit-e.count {
		return s.now(b)
	}
	last, ok := b.pulse.amplyBefore(e.end(), e.scale)
	if ok && last-s.anchor.nanos < anchorLife {
		return max(last, e.updated)
	}
	now := s.now(b)
	b.pulse.start(now)
	return now
}
