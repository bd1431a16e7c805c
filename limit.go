package throttr

import (
	"context"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

type (
	// Limit is a rule: at most Max in a Scale. It has no key: one Limit is for any number of keys. A count belongs to
	// the key and the limit's Name, Scale, Algorithm, Calendar, Zone and StartDay, not to Max and Burst. Its fields:
	//
	//	go doc github.com/throttr-go/throttr/window Limit
	Limit = window.Limit
	// Take is N of a Limit for a key. [Limit.For] makes one.
	Take = window.Take
	// Algorithm is how a limit counts. The zero Algorithm is that of the RateLimit, see [WithAlgorithm].
	Algorithm = window.Algorithm
	// Backend keeps windows on a store. Implement it to use a RateLimit with a store of your own. Its methods, and what
	// they must do:
	//
	//	go doc github.com/throttr-go/throttr/window Backend
	Backend = window.Backend
	// Calendar is a unit of the calendar, in place of a Scale.
	Calendar = window.Calendar
	// Listed is what a backend counts for a key and limit: see [window.Listed], and the List of a [Backend].
	Listed = window.Listed
	// ListedPlaces is the places in flight of a key and name: see [window.ListedPlaces], and the ListPlaces of a
	// [Backend].
	ListedPlaces = window.ListedPlaces
)

// The algorithms. Package window documents each.
const (
	FixedWindow   = window.FixedWindow   // a window opens with the key's first hit and ends one scale later
	AlignedWindow = window.AlignedWindow // windows start at multiples of the scale since 1970, for all keys
	TokenBucket   = window.TokenBucket   // gains Max tokens per Scale, holds Burst
	SlidingWindow = window.SlidingWindow // two aligned windows, the older one weighted
	SlidingLog    = window.SlidingLog    // the time of every hit

	CalendarWindow = window.CalendarWindow // of limits with a Calendar: days, weeks, months or years
)

// The units of the calendar.
const (
	Day   = window.Day
	Week  = window.Week
	Month = window.Month
	Year  = window.Year
)

const (
	// Unlimited as the Max of a limit: every take is granted at once, and never counted.
	Unlimited = window.Unlimited
	// Never as a RetryAfter: waiting does not help. Adding it to a time does not overflow.
	Never = window.Never
)

// Check returns an error if a limit is invalid, or if the backend or the fallback of [WithFallback] can't
// keep it. Every call with the limit would return that error, so check limits when the program starts. It
// matches [ErrScale], [ErrRange] or [ErrUnsupported]. Check asks no server. Before a lazy connection is
// up, Check knows all but what depends on the value size of the servers.
func (r *RateLimit) Check(limits ...Limit) error {
	for _, l := range limits {
		r.resolve(&l)
		l.Shadow = false
		if err := r.check(l); err != nil {
			return err
		}
	}
	return nil
}

func (r *RateLimit) check(l Limit) error {
	if err := limits.Check(&l); err != nil {
		return err
	}
	if l.Max == Unlimited {
		return nil // never reaches a backend
	}
	if _, err := r.store.Check(l); err != nil || r.fallback == nil {
		return err
	}
	_, err := r.fallback.Check(r.share(l))
	return err
}

// Forget ends what limits have counted for a key: the next take finds an empty window. Without limits, it
// does nothing. It also ends the windows of the fallback.
func (r *RateLimit) Forget(ctx context.Context, key string, limits ...Limit) error {
	for _, l := range limits {
		r.resolve(&l)
		if err := r.reset(ctx, "forget", key, l); err != nil {
			return err
		}
	}
	return nil
}
