package algorithm

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// A fixed window starts with the first hit, and an aligned one at a multiple of the scale. In its record,
//   - Start is when the window has started.
//   - Count is what it has counted. One of [window.Unlimited] may be more.
//   - ID is its series.

var fixed = Algorithm{
	look:     func(r *Record, by Rule, t Time) uint64 { return lookFixed(r, by, since(r, t)) },
	left:     func(r *Record, t Time) time.Duration { return rest(1, r.Scale, since(r, t)) },
	wait:     func(r *Record, t Time, _ uint64) time.Duration { return rest(1, r.Scale, since(r, t)) },
	add:      func(r *Record, t Time, n, series uint64) { addFixed(r, t.Now, n, series) },
	giveBack: giveBackFixed,
}

var aligned = Algorithm{
	Wall: true,
	look: func(r *Record, by Rule, t Time) uint64 { return lookFixed(r, by, sinceAligned(r, t)) },
	left: func(r *Record, t Time) time.Duration { return rest(1, r.Scale, sinceAligned(r, t)) },
	wait: func(r *Record, t Time, _ uint64) time.Duration { return rest(1, r.Scale, sinceAligned(r, t)) },
	add: func(r *Record, t Time, n, series uint64) {
		start := r.Start
		if r.ID == 0 {
			start = alignedStart(t, r.Scale)
		}
		addFixed(r, start, n, series)
	},
	giveBack: giveBackFixed,
}

func lookFixed(r *Record, by Rule, passed time.Duration) uint64 {
	if passed >= by.Scale && r.ID != 0 {
		r.End()
	}
	r.Rule = by
	return r.Count
}

// addFixed counts n. A window that opens has the given start.
func addFixed(r *Record, start int64, n, series uint64) {
	if r.ID == 0 {
		r.Start = start
		r.ID = int64(series)
	}
	r.Count = plus(r.Count, n)
}

func giveBackFixed(r *Record, _ Time, id int64, n uint64) bool {
	if id != r.ID || r.Count == window.Unlimited {
		return false
	}
	r.Count = minus(r.Count, n)
	return true
}
