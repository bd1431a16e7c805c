package fixedwindow

import (
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// Inspect returns what a record, with its quota and what remains of its TTL, says about the window
// of a key and scale at a time of the server. The Window is zero if it is not active. Inspect
// returns false if the record does not belong to that key and scale.
func Inspect[T codec.Value](name, key string, scale time.Duration, quota uint64, ttl time.Duration, now time.Time) (w window.Window, ok bool) {
	n, ok := ParseName([]byte(name))
	part, hashed := keyPart(key)
	if !ok || n.Key != part || n.Hashed != hashed || n.Scale != scale {
		return w, false
	}
	largest := uint64(^T(0))
	if n.Aligned {
		if end := time.Unix(0, (n.Bucket+1)*int64(scale)); end.After(now) {
			w = window.Window{Count: largest - quota, ExpiresAt: end, Left: end.Sub(now)}
		}
		return w, true
	}
	l, ok := layoutFor(scale, largest)
	if !ok || n.tag != l.Tag(n.Slot) {
		return w, false // of clients of other rules
	}
	if l.State(l.Observe(quota, uint64(ttl/l.Unit))) == slot.Live {
		left := ttl - time.Duration(l.Margin)*l.Unit
		w = window.Window{Count: largest - quota, ExpiresAt: now.Add(left), Left: left}
	}
	return w, true
}
