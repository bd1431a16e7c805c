package algorithm

import (
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// A sliding window is two aligned windows: the present one, and the one before, which is weighted by the part of it
// that is less than a scale ago. In its record,
//   - Start is when the present one has started.
//   - Count is what that has counted, and ID its series; 0: nothing yet.
//   - More is what the one before has counted, and Last its series; 0: nothing.

var sliding = Algorithm{
	aligned:  true,
	count:    countSliding,
	left:     leftSliding,
	wait:     waitSliding,
	add:      addFixed,
	giveBack: giveBackSliding,
}

func countSliding(r *Record, now int64) uint64 {
	passed := r.passed(now)
	if passed >= r.Scale {
		if passed-r.Scale >= r.Scale || r.Count == 0 {
			r.End()
			return 0
		}
		r.Start += int64(r.Scale)
		r.More = r.Count
		r.Last = r.ID
		r.Count = 0
		r.ID = 0
		passed -= r.Scale
	}
	if r.More == 0 {
		return r.Count
	}
	over, _ := limits.MulDiv(r.More, uint64(max(passed, 0)), uint64(r.Scale))
	return plus(r.More-over, r.Count)
}

func leftSliding(r *Record, now int64) time.Duration {
	if r.Count > 0 {
		return rest(2*uint64(r.Scale), r.passed(now))
	}
	return leftFixed(r, now)
}

// waitSliding returns when what weighs has become room: the window before if that does, and otherwise the present one.
func waitSliding(r *Record, now int64, bound uint64) time.Duration {
	scales, before := uint64(1), r.More
	if r.Count > bound {
		scales, before = 2, r.Count
	} else {
		bound -= r.Count
	}
	weighs, _ := limits.MulDiv(bound, uint64(r.Scale), before) // for so long before its weight is 0, it is at most bound
	return rest(scales*uint64(r.Scale), r.passed(now)) - time.Duration(weighs)
}

func giveBackSliding(r *Record, id int64, n uint64) bool {
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
	*count -= min(n, *count)
	if r.Count == 0 && r.More == 0 {
		r.End()
	}
	return true
}
