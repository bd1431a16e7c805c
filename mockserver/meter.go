package mockserver

import (
	"time"

	"github.com/throttr-go/throttr/codec"
)

// meter counts, as a real server does: once a minute it notes how much was counted
// in that minute. Nothing runs in the background: a meter catches up when it is
// looked at, and so everything here takes the minute that it is, counted from the
// server's start.
type meter struct {
	minute uint64 // of recent
	before uint64 // counted in all minutes before
	recent uint64 // counted in this minute
	last   uint64 // counted in the minute before
}

func (m *meter) catchUp(minute uint64) {
	if minute == m.minute {
		return
	}
	m.last = 0
	if minute == m.minute+1 {
		m.last = m.recent
	}
	m.before += m.recent
	m.recent = 0
	m.minute = minute
}

func (m *meter) mark(minute, n uint64) {
	m.catchUp(minute)
	m.recent += n
}

func (m *meter) total() uint64 { return m.before + m.recent }

func (m *meter) count(minute uint64) codec.Count {
	m.catchUp(minute)
	return codec.Count{Total: m.total(), PerMinute: m.last}
}

// usage returns how much the record was used, as the server knows it: up to the
// end of the last whole minute.
func (r *record) usage(minute uint64) codec.Usage {
	r.reads.catchUp(minute)
	r.writes.catchUp(minute)
	return codec.Usage{
		ReadsPerMinute: r.reads.last, WritesPerMinute: r.writes.last,
		Reads: r.reads.before, Writes: r.writes.before,
	}
}

// minuteOf returns how many whole minutes have passed at now since start.
func minuteOf(start, now uint64) uint64 { return (now - start) / uint64(time.Minute) }
