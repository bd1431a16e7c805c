package inflight

import (
	"cmp"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// DefaultLease is the default of [Limit.Lease].
const DefaultLease = 30 * time.Second

// Limit is a rule: at most Max at a time. It has no key: one Limit is for any number of keys. Places belong to
// the key and the Name, and not to Max: if that is lowered, nobody loses a place.
type Limit struct {
	Name string // tells limits of one key apart: at most 64 printable ASCII characters
	Max  uint64 // how many places there are, up to [window.MaxPlaces]; or [window.Unlimited]
	// Lease is how long the places of a process stay held after the store has heard of it last. A short one
	// lets others have the places of a crashed process soon, and a long one outlasts outages of the store. All
	// processes must use the same for a Name. From [window.MinLease] to [window.MaxLease]. Default:
	// [DefaultLease].
	Lease time.Duration
}

// String formats the limit: "exports: 20 at a time".
func (l Limit) String() string { return l.asLimit().String() }

// asLimit returns the limit for errors.
func (l Limit) asLimit() window.Limit { return window.Limit{Name: l.Name, Max: l.Max} }

// check sets the defaults, and returns why the limit or n can't be kept.
func (l *Limit) check(n uint64) error {
	l.Lease = cmp.Or(l.Lease, DefaultLease)
	if err := limits.CheckPlaces(l.Name, l.Max, l.Lease); err != nil {
		return err
	}
	if n == 0 || n > window.Unlimited {
		return &window.RangeError{Field: "N", Value: fmt.Sprint(n),
			Bound: fmt.Sprintf("from 1 to the Max, %d", l.Max)}
	}
	return nil
}
