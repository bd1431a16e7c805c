package inflight

import (
	"fmt"
	"time"

	"github.com/throttr-go/throttr/window"
)

// NotYetError says that no places are granted yet, as the store is new, or has lost its data: see [WithStrict]. It
// matches throttr.ErrUnavailable.
type NotYetError struct {
	RetryAfter time.Duration // what is left of the wait
}

// Error says for how long nothing is granted.
func (e *NotYetError) Error() string {
	return fmt.Sprintf("inflight: the store is new, or has lost its data: no places are granted for %v",
		e.RetryAfter.Round(time.Millisecond))
}

// Unwrap returns [window.ErrUnavailable].
func (e *NotYetError) Unwrap() error { return window.ErrUnavailable }

// noticed counts a loss of data, logs it, and tells the observer. Nothing is granted for grace. What is noticed within
// a lease is one loss. The mutex is held.
func (l *Limiter) noticed(now, lease, grace time.Duration) {
	if now >= l.lossUntil {
		l.stats.Losses++
		l.later = append(l.later, func() {
			if grace > 0 {
				l.outages.Log().Warn("throttr: the store is new, or has lost its data: "+
					"no places in flight are granted yet", "for", grace.Round(time.Millisecond))
			} else {
				l.outages.Log().Warn("throttr: the store has lost its data: more places in flight than Max may be held")
			}
			l.observe(Event{Kind: DataLost})
		})
	}
	l.lossUntil = now + lease // also of slots of a cluster that find out later
}

// toldTo notes which data set a lane has told something. If that is another one than before, all pumps tell it at once
// what they hold. The slots of a cluster are data sets of their own: there, each pump finds out with its next renewal.
// The mutex is held.
func (l *Limiter) toldTo(dataSet uint64, at lane, now time.Duration) {
	if at.part != "" || dataSet == 0 || dataSet == l.dataSet || now < l.renewAt {
		return
	}
	if l.dataSet != 0 {
		l.renewAt = now + at.lease/8 // a proxy may be to several servers, whose answers differ
		for _, other := range l.byID {
			other.again()
			l.update(other, now)
		}
	}
	l.dataSet = dataSet
}
