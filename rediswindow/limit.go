package rediswindow

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// MaxCount is the largest Max, Burst, n and count that the backend accepts: 2^53-1.
const MaxCount = 1<<53 - 1

// letters are those of the algorithms in the names of fields.
var letters = [...]byte{window.FixedWindow: 'f', window.AlignedWindow: 'a', window.TokenBucket: 'b',
	window.SlidingWindow: 'w', window.SlidingLog: 'l',
	window.CalendarWindow: 'c'}

// check returns what the backend promises about a limit, or why it can't keep it.
func (b *Backend) check(l *window.Limit) (t window.Traits, err error) {
	if err := limits.Check(l); err != nil {
		return t, err
	}
	if l.Scale%time.Microsecond != 0 {
		return t, fmt.Errorf("%w: %v is not a whole number of microseconds", window.ErrScale, l.Scale)
	}
	t.MaxCount = MaxCount
	if l.Algorithm.Rolling() {
		t.Precision = time.Microsecond // of the times in scripts
	}
	if l.Algorithm == window.SlidingLog {
		t.MaxCount = b.maxLog
	}
	if err := cmp.Or(checkNumber("Max", l.Max, t.MaxCount), checkNumber("Burst", l.Burst, t.MaxCount)); err != nil {
		return window.Traits{}, err
	}
	return t, nil
}

// checkNumber returns an error if n is more than the most.
func checkNumber(field string, n, most uint64) error {
	if n <= most {
		return nil
	}
	bound := fmt.Sprintf("at most %d", most)
	if most == MaxCount {
		bound = "at most 2^53-1"
	}
	return &window.RangeError{Field: field, Value: strconv.FormatUint(n, 10), Bound: bound}
}
