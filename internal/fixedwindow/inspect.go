package fixedwindow

import (
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// Inspect returns what a record, with its quota and what remains of its TTL, says about the window
// of a key and limit at a time of the server. The Window is zero if it is not active. Inspect
// returns false if the record is not one of that key and limit.
func Inspect[T codec.Value](name, key string, limit window.Limit, quota uint64, ttl time.Duration, now time.Time) (w window.Window, ok bool) {
	n, ok := ParseName([]byte(name))
	if !ok || n.Scale != limit.Scale || n.algorithm() != limit.Algorithm || !n.isOf(key, limit.Name) {
		return w, false
	}
	scale := limit.Scale
	largest := uint64(^T(0))
	if n.Aligned {
		if end := time.Unix(0, (n.Bucket+1)*int64(scale)); end.After(now) {
			w = window.Window{Count: largest - quota, ExpiresAt: end, Left: end.Sub(now)}
		}
		return w, true
	}
	l, ok := layoutFor(scale, largest)
	if !ok || n.tag != l.bands.Tag(n.Slot) {
		return w, false // of clients of other rules
	}
	if l.bands.State(l.bands.Observe(quota, uint64(ttl/l.bands.Unit))) == slot.Live {
		left := ttl - time.Duration(l.bands.Margin)*l.bands.Unit
		w = window.Window{Count: largest - quota, ExpiresAt: now.Add(left), Left: left}
	}
	return w, true
}

// isOf reports whether the name is of a record of a key and the name of a limit.
func (n Name) isOf(key, limit string) bool {
	if part, f := partOf(key, limit); f == hashed {
		return n.Hashed && n.Key == part
	}
	return !n.Hashed && n.Key == key && n.Limit == limit
}

// algorithm returns the algorithm of the window.
func (n Name) algorithm() window.Algorithm {
	switch {
	case n.Sliding:
		return window.SlidingWindow
	case n.Aligned:
		return window.AlignedWindow
	}
	return window.FixedWindow
}
