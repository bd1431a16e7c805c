package fixedwindow

import (
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/window"
)

// Inspect returns what a record, with its quota and what remains of its TTL, says about the window
// of a key and scale at a time of the server. The Window is zero if it is not active. Inspect
// returns false if the record does not belong to that key and scale.
func Inspect[T codec.Value](name, key string, scale time.Duration, quota uint64, ttl time.Duration, now time.Time) (w window.Window, ok bool) {
	for _, a := range []window.Algorithm{window.PerKey, window.Aligned} {
		t, known := timingFor(a, scale, maxValue[T]())
		if !known {
			continue
		}
		prefix, suffix := recordName(key, t)
		rest, hasPrefix := strings.CutPrefix(name, prefix)
		number, hasSuffix := strings.CutSuffix(rest, suffix)
		bucket, err := strconv.ParseInt(number, 10, 64)
		if !hasPrefix || !hasSuffix || err != nil {
			continue
		}
		end := now.Add(ttl - t.duration(t.margin))
		if a == window.Aligned {
			end = t.bucketEnd(bucket)
		}
		if !end.After(now) {
			return window.Window{}, true
		}
		return window.Window{Count: quota, ExpiresAt: end, Left: end.Sub(now)}, true
	}
	return window.Window{}, false
}
