package fixedwindow

import (
	"bytes"
	"encoding/base64"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/window"
)

// hashLength is the length of a key's hash in the name of a record.
var hashLength = base64.RawURLEncoding.EncodedLen(32)

// Rule knows the records of windows, of all keys and scales, by their names.
type Rule[T codec.Value] struct {
	mu sync.Mutex // guards what follows
	// The timings of scales as they are in names. They are not many, unless names are made up.
	perKey, aligned map[string]timing
}

// maxTimings bounds the timings that a Rule remembers.
const maxTimings = 1024

var _ sweep.Rule = (*Rule[uint16])(nil)

// Inspect implements [sweep.Rule].
func (r *Rule[T]) Inspect(name []byte, now time.Time) (removable, ours bool) {
	t, bucket, ok := r.parse(name)
	return ok && t.unusable(bucket, now), ok
}

// Decide implements [sweep.Rule].
//
// A record whose client is alive is removed by its client's reaper, after a grace. Thus the
// sweeper removes and prolongs only those that are over for longer. It prolongs them by half of
// what keeps them from being an active window, so that two sweepers at once do not make
// one.
func (r *Rule[T]) Decide(name []byte, o sweep.Observation, now time.Time) sweep.Decision {
	t, bucket, ok := r.parse(name)
	if !ok || o.Unit != t.unit || o.Left > t.span+t.margin {
		return sweep.Decision{} // of somebody else
	}
	d := sweep.Decision{Interval: t.sweepInterval()}
	if o.Left >= t.margin {
		return d
	}
	d.Action = sweep.Keep
	short := t.margin - 1 - o.Left
	switch {
	case t.unusable(bucket, now):
		d.Action = sweep.Remove
	case short >= 2 && t.duration(short) > t.grace()+time.Second:
		d.Action, d.Increase = sweep.Prolong, short/2
	}
	return d
}

// parse returns what the name of a record says. It returns false if there are no such records.
func (r *Rule[T]) parse(name []byte) (t timing, bucket int64, ok bool) {
	if len(name) < 3 || name[2] != ':' {
		return t, 0, false
	}
	scale, rest, _ := bytes.Cut(name[3:], []byte(":"))
	number, key, ok := bytes.Cut(rest, []byte(":"))
	if !ok {
		return t, 0, false
	}
	switch string(name[:2]) {
	case "rl", "al":
		ok = len(key) <= maxRecordKey
	case "rh", "ah":
		ok = len(key) == hashLength
	default:
		ok = false
	}
	if !ok {
		return t, 0, false
	}
	if t, ok = r.timing(name[0] == 'a', scale); !ok {
		return t, 0, false
	}
	bucket, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil || strconv.FormatInt(bucket, 10) != string(number) {
		return t, 0, false
	}
	most := math.MaxInt64/int64(t.scale) - 4 // so that its end is a time
	return t, bucket, -most < bucket && bucket < most
}

// timing returns the timing of a scale as it is in names. It returns false if there is none.
func (r *Rule[T]) timing(aligned bool, text []byte) (timing, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, a := &r.perKey, window.PerKey
	if aligned {
		known, a = &r.aligned, window.Aligned
	}
	if t, ok := (*known)[string(text)]; ok {
		return t, true
	}
	scale, err := time.ParseDuration(string(text))
	if err != nil || scale.String() != string(text) || window.CheckScale(scale) != nil {
		return timing{}, false
	}
	t, ok := timingFor(a, scale, maxValue[T]())
	if !ok {
		return timing{}, false
	}
	if len(*known) >= maxTimings || *known == nil {
		*known = make(map[string]timing)
	}
	(*known)[string(text)] = t
	return t, true
}

// unusable reports whether no client uses the name of a bucket's record again, if clocks differ
// by less than a scale, and requests take less than a few seconds.
func (t timing) unusable(bucket int64, now time.Time) bool {
	slack := min(5*time.Second, t.duration(t.margin)/4)
	return !now.Before(t.bucketEnd(bucket + 1).Add(slack))
}

// sweepInterval returns at which interval a server that is not parked must be swept: three times
// while a record that its client has not removed is over.
func (t timing) sweepInterval() time.Duration {
	return max((t.duration(t.margin)-t.grace()-time.Second)/3, time.Millisecond)
}
