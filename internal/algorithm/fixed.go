package algorithm

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// A fixed window starts with the first hit. An aligned one starts at a multiple of the scale, and one of a calendar as
// that says. A window that is open keeps its end. In its record,
//   - Start is when the window has started, and Scale its length.
//   - Count is what it has counted. One of [window.Unlimited] may be more.
//   - ID is its series.

// fixed returns the algorithm of windows that start with a hit, or are aligned.
func fixed(aligned bool) Algorithm {
	return Algorithm{
		aligned:  aligned,
		count:    countFixed,
		left:     leftFixed,
		wait:     func(r *Record, now int64, _ uint64) time.Duration { return leftFixed(r, now) },
		add:      addFixed,
		giveBack: giveBackFixed,
	}
}

func countFixed(r *Record, now int64) uint64 {
	if r.passed(now) >= r.Scale {
		r.End()
	}
	return r.Count
}

func leftFixed(r *Record, now int64) time.Duration {
	if r.Empty() {
		return 0
	}
	return rest(uint64(r.Scale), r.passed(now))
}

func addFixed(r *Record, _ int64, n, series uint64) {
	if r.ID == 0 {
		r.ID = int64(series)
	}
	r.Count = plus(r.Count, n)
}

func giveBackFixed(r *Record, id int64, n uint64) bool {
	if id != r.ID || r.Count == window.Unlimited {
		return false
	}
	r.Count -= min(n, r.Count)
	return true
}
