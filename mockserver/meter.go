package mockserver

import "github.com/throttr-go/throttr/codec"

// meter counts events, and how many there were in the last whole minute. Minutes are
// counted from the start of the server. Nothing runs in the background: a meter catches
// up when it is used.
type meter struct {
	minute uint64 // the minute of recent
	before uint64 // events in all earlier minutes
	recent uint64 // events in this minute
	last   uint64 // events in the minute before it
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

// usage returns how much the record was used up to the end of the last whole minute: a
// real server updates these figures once a minute.
func (r *record) usage(minute uint64) codec.Usage {
	r.reads.catchUp(minute)
	r.writes.catchUp(minute)
	return codec.Usage{
		ReadsPerMinute: r.reads.last, WritesPerMinute: r.writes.last,
		Reads: r.reads.before, Writes: r.writes.before,
	}
}
