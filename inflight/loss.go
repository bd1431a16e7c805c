package inflight

import (
	"cmp"
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

// losses are the losses of data of the store.
type losses struct {
	count   uint64
	end     time.Duration // until then, a loss is the last one
	dataSet uint64        // of a store that is one part, when it was told last
	renewAt time.Duration // no sooner are all pumps made to renew what they hold
}

// noticed counts a loss of data. What is noticed within a lease is one loss. The mutex is held.
func (l *Limiter) noticed(now, lease, grace time.Duration) {
	if now >= l.losses.end {
		l.losses.count++
		l.later = append(l.later, func() { l.lostData(grace) })
	}
	l.losses.end = now + lease // also of slots of a cluster that find out later
}

// lostData logs that the store has lost its data, and tells the observer. Nothing is granted for grace.
func (l *Limiter) lostData(grace time.Duration) {
	if logger := l.logger(); logger != nil {
		if grace > 0 {
			logger.Warn("throttr: the store is new, or has lost its data: no places in flight are granted yet",
				"for", grace.Round(time.Millisecond))
		} else {
			logger.Warn("throttr: the store has lost its data: more places in flight than Max may be held")
		}
	}
	l.observe(Event{Kind: DataLost})
}

// toldTo notes which data set a pump has told what it holds. If that is another one than before, all pumps tell it at
// once. The mutex is held.
func (l *Limiter) toldTo(dataSet uint64, e *keyPump, part string, now time.Duration) {
	known := &l.losses.dataSet
	if part != "" { // a node of a cluster, where each slot is a data set
		known = &e.dataSet
	}
	before := *known
	*known = cmp.Or(dataSet, before)
	if before == 0 || *known == before || now < l.losses.renewAt {
		return
	}
	l.losses.renewAt = now + e.claim.Lease/8 // the slots of a cluster find out one by one
	for _, other := range l.byID {
		other.again()
		l.update(other, now)
	}
}
