package fixedwindow

import (
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/conn"
)

// observation is what a QUERY showed of a record.
type observation struct {
	bucket   int64
	found    bool
	count    uint64
	left     uint64    // the TTL in the timing's unit
	from, to time.Time // the QUERY was executed between these times
	wrapped  bool      // the INCREASE before the QUERY has wrapped the counter around
}

// observe returns what the reply to a QUERY shows.
func observe[T codec.Value](bucket int64, r conn.Reply[T], from, to time.Time) observation {
	return observation{bucket: bucket, found: r.OK, count: uint64(r.Quota), left: uint64(r.TTL.Amount), from: from, to: to}
}

// live reports whether the record's window was active.
func (o observation) live(t timing) bool { return o.found && (t.aligned || o.left >= t.margin) }

// end returns the times between which the record's window ends. The TTL was floored to a unit.
// The record must be live.
func (o observation) end(t timing) (earliest, latest time.Time) {
	if t.aligned {
		return t.bucketEnd(o.bucket), t.bucketEnd(o.bucket)
	}
	return o.from.Add(t.duration(o.left - t.margin)), o.to.Add(t.duration(o.left - t.margin + 1))
}

// openedAfter reports whether the record's window was certainly opened after a time.
func (o observation) openedAfter(at time.Time, t timing) bool {
	earliest, _ := o.end(t)
	return earliest.Add(-t.scale).After(at)
}

// matches reports whether the record is live and can be that of a window that is known, to which
// added was added since. It can't if the count is less than that. Another record of the same name
// need not be the key's window: another client may be about to remove it, as the younger of two.
func (o observation) matches(known state, added uint64, t timing) bool {
	if !o.live(t) || o.count < added || o.count-added < known.count {
		return false
	}
	s := o.state(t)
	return s.narrow(known)
}

// state returns the window of the record, which must be live.
func (o observation) state(t timing) state {
	s := state{bucket: o.bucket, count: o.count, seen: o.from}
	s.earliestEnd, s.latestEnd = o.end(t)
	return s
}

// state is what a client knows of an active window.
type state struct {
	bucket int64
	count  uint64    // when the window was last read
	seen   time.Time // when that was, at the earliest

	earliestEnd, latestEnd time.Time // the window ends between these times
}

// opened returns the state of a window that was opened in a bucket between two times.
func (t timing) opened(bucket int64, count uint64, from, to time.Time) state {
	s := state{bucket: bucket, count: count, seen: from, earliestEnd: from.Add(t.scale), latestEnd: to.Add(t.scale)}
	if t.aligned {
		s.earliestEnd, s.latestEnd = t.bucketEnd(bucket), t.bucketEnd(bucket)
	}
	return s
}

// narrow narrows the end of the window to what was known of it before. It returns false, and
// changes nothing, if the two contradict each other. They are different windows then, whose
// records had the same name one after the other.
func (s *state) narrow(old state) (same bool) {
	earliest, latest := s.earliestEnd, s.latestEnd
	if old.earliestEnd.After(earliest) {
		earliest = old.earliestEnd
	}
	if old.latestEnd.Before(latest) {
		latest = old.latestEnd
	}
	if earliest.After(latest) {
		return false
	}
	s.earliestEnd, s.latestEnd = earliest, latest
	return true
}

// result returns the window with another count. Its end is never too early, and never more than
// a scale away.
func (s state) result(t timing, count uint64, now time.Time) coalesce.Result {
	left := min(max(s.latestEnd.Sub(now), 1), t.scale)
	return coalesce.Result{Count: count, ExpiresAt: now.Add(left), Left: left, ID: s.bucket}
}
