package memory

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// anchorLife is how old a reading of the wall clock may be that times are told by.
const anchorLife = int64(time.Second)

// instant is a time, and what it is in nanoseconds since the backend's origin.
type instant struct {
	time  time.Time
	nanos int64
}

// now returns the nanoseconds since the backend's origin, and sees to an anchor to tell
// times by. The mutex is held.
//
// Per-key windows need no more than the monotonic clock, which takes half as long to read as
// both clocks. The wall clock is read once a second, and tells the times that follow by how
// much later they are: where it was set in between, they are off by as much, and the
// windows are not.
func (s *shard) now(b *Backend) int64 {
	if b.monotonic {
		if nanos := int64(time.Since(b.origin)); nanos-s.anchor.nanos < anchorLife {
			return nanos
		}
	}
	s.anchor = b.instant()
	s.told = s.anchor
	return s.anchor.nanos
}

// instant returns the time. Aligned windows follow the wall clock. Others do not notice
// when that is set, as long as the times have a monotonic reading.
func (b *Backend) instant() instant {
	t := b.clock()
	if b.algorithm == window.Aligned {
		t = t.Round(0)
	}
	return instant{t, int64(t.Sub(b.origin))}
}
