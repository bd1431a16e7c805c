package main

import (
	"time"

	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/slot"
)

// windowName is what the name of a record says, if it is one of a window's.
type windowName struct {
	fixedwindow.Name
}

// parseWindow returns what the name of a record says. It returns false for a record that is not
// one of a window's.
func parseWindow(name string) (windowName, bool) {
	n, ok := fixedwindow.ParseName([]byte(name))
	return windowName{n}, ok
}

// key returns the key for output. Of a long key, only the hash is known.
func (n windowName) key() string {
	if n.Hashed {
		return "#" + n.Key
	}
	return n.Key
}

// openWindow is an open window.
type openWindow struct {
	count  uint64
	endsIn time.Duration
}

// window returns the window that a record holds. It returns false if none is open. Largest is the
// largest value of the server.
func (n windowName) window(c counter, largest uint64, now time.Time) (w openWindow, open bool) {
	if n.Aligned {
		w = openWindow{largest - c.quota, time.Unix(0, (n.Bucket+1)*int64(n.Scale)).Sub(now)}
		return w, w.endsIn > 0
	}
	bands, ok := slot.BandsFor(n.Scale, largest)
	if !ok || bands.Unit != c.unit.Duration() {
		return w, false
	}
	o := bands.Observe(c.quota, uint64(c.ttl/bands.Unit))
	if bands.State(o) != slot.Live {
		return w, false
	}
	return openWindow{o.Count, time.Duration(o.TTL-bands.Margin+1) * bands.Unit}, true
}
