package algorithm

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// A sliding window is two aligned windows: the present one, and the one before, which is weighted by the part of it
// that is less than a scale ago. In its record,
//   - Start is when the present one has started.
//   - Count is what that has counted, and ID its series; 0: nothing yet.
//   - More is what the one before has counted, and Last its series; 0: nothing.

var sliding = Algorithm{
	Wall:     true,
	Rolling:  true,
	look:     lookSliding,
	left:     leftSliding,
	wait:     waitSliding,
	add:      addSliding,
	giveBack: giveBackSliding,
}

func lookSliding(r *Record, by Rule, t Time) uint64 {
	if r.Empty() {
		r.Rule = by
		return 0
	}
	passed := sinceAligned(r, t)
	if passed >= by.Scale {
		if uint64(passed) >= 2*uint64(by.Scale) || r.Count == 0 {
			r.End()
			r.Rule = by
			return 0
		}
		*r = Record{Start: r.Start + int64(by.Scale), More: r.Count, Last: r.ID}
		passed -= by.Scale
	}
	r.Rule = by
	if r.More == 0 {
		return r.Count
	}
	scale := uint64(by.Scale)
	before := r.More - share(r.More, scale-uint64(by.Scale-max(passed, 0)), scale)
	return plus(before, r.Count)
}

func leftSliding(r *Record, t Time) time.Duration {
	if r.Count > 0 {
		return rest(2, r.Scale, sinceAligned(r, t))
	}
	return rest(1, r.Scale, sinceAligned(r, t))
}

// waitSliding returns when what weighs has become room: the window before if that does, and otherwise the present one.
func waitSliding(r *Record, t Time, room uint64) time.Duration {
	scales, before := uint64(1), r.More
	if r.Count > room {
		scales, before = 2, r.Count
	} else {
		room -= r.Count
	}
	weighs := share(room, uint64(r.Scale), before) // for so long before its weight is 0, it is at most room
	return rest(scales, r.Scale, sinceAligned(r, t)) - time.Duration(weighs)
}

func addSliding(r *Record, t Time, n, series uint64) {
	if r.Empty() {
		r.Start = alignedStart(t, r.Scale)
	}
	if r.ID == 0 {
		r.ID = int64(series)
	}
	r.Count = plus(r.Count, n)
}

func giveBackSliding(r *Record, _ Time, id int64, n uint64) bool {
	count := &r.Count
	switch id {
	case r.ID:
	case r.Last:
		count = &r.More
	default:
		return false
	}
	if *count == window.Unlimited {
		return false
	}
	*count = minus(*count, n)
	if r.Count == 0 && r.More == 0 {
		r.End()
	}
	return true
}
