package fixedwindow

import (
	"bytes"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/window"
)

// sweepMargin is how long before its end a sweep has to begin, beside the guards: for
// requests, and for the clocks of timers.
const sweepMargin = time.Second

// Inspect is the [sweep.Inspect] of the records of windows, of all keys and limits. It knows them by their names.
//
// A record of a slot is removed by its janitor as soon as it is doomed. If it comes below
// [slot.Bands.Watch], the janitor has died, and the sweeper removes the records of the key.
func (r *Remover) Inspect(name []byte, left uint64) sweep.Decision {
	n, ok := ParseName(name)
	if !ok || limits.CheckScale(n.Scale) != nil {
		return sweep.Decision{}
	}
	bands, ok := slot.BandsFor(n.Scale, r.link.calls.Size().Largest())
	if !ok || n.tag != bands.Tag(n.Slot) || left > bands.Top {
		return sweep.Decision{} // of somebody else
	}
	d := sweep.Decision{Interval: sweepInterval(&bands)}
	d.Over = left < bands.Margin
	if left < bands.Watch {
		slotA := bytes.Clone(name) // the records of both slots are removed together
		slotA[2] = 'A'
		d.Target = string(slotA)
	}
	return d
}

// sweepInterval returns at which interval a server that is not parked must be swept: three times
// while only sweepers remove a record.
func sweepInterval(b *slot.Bands) time.Duration {
	left := time.Duration(b.Watch)*b.Unit - 4*b.Guard - sweepMargin
	return max(left/3, time.Millisecond)
}

// Window returns what the record of the name, with its quota and what remains of its TTL, says about its
// window at a time of the server. Largest is the largest value of the server. The Window is zero if it is
// not active. Window returns false if clients that keep windows otherwise have made the record.
func (n Name) Window(largest, quota uint64, ttl time.Duration, now time.Time) (w window.Window, ok bool) {
	bands, ok := slot.BandsFor(n.Scale, largest)
	if !ok || n.tag != bands.Tag(n.Slot) {
		return w, false
	}
	if bands.State(bands.Observe(quota, uint64(ttl/bands.Unit))) == slot.Live {
		left := ttl - time.Duration(bands.Margin)*bands.Unit
		w = window.Window{Count: largest - quota, ExpiresAt: now.Add(left), Left: left}
	}
	return w, true
}

// IsOf reports whether the name is of a record of a key and limit.
func (n Name) IsOf(key string, l window.Limit) bool {
	if n.Scale != l.Scale || l.Algorithm != window.FixedWindow {
		return false
	}
	if part, f := partOf(key, l.Name); f == hashed {
		return n.Hashed && n.Key == part
	}
	return !n.Hashed && n.Key == key && n.LimitName == l.Name
}
