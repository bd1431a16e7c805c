package fixedwindow

import (
	"bytes"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/sweep"
)

// sweepMargin is how long before its end a sweep has to begin, beside the guards: for
// requests, and for the clocks of timers.
const sweepMargin = time.Second

// Rule knows the records of windows, of all keys and limits, by their names.
//
// A record of a slot is removed by its janitor as soon as it is doomed. If it comes below
// [slot.Bands.Watch], the janitor has died, and the sweeper removes the records of the key. A
// record of an aligned window is removed when no client uses its name any more.
type Rule[T codec.Value] struct{ layouts layouts }

var _ sweep.Rule = (*Rule[uint16])(nil)

// Inspect implements [sweep.Rule].
func (r *Rule[T]) Inspect(name []byte, now time.Time) (removable, ours bool) {
	n, ok := ParseName(name)
	switch {
	case !ok:
		return false, false
	case n.Aligned:
		t, ok := r.timing(n)
		return ok && t.unusable(n.Bucket, now), ok
	default:
		_, ok := r.layout(n)
		return ok, ok
	}
}

// Decide implements [sweep.Rule].
func (r *Rule[T]) Decide(name []byte, o sweep.Observation, now time.Time) sweep.Decision {
	n, ok := ParseName(name)
	if !ok {
		return sweep.Decision{}
	}
	if n.Aligned {
		return r.decideAligned(name, n, o, now)
	}
	l, ok := r.layout(n)
	if !ok || o.Left > l.bands.Top {
		return sweep.Decision{} // of somebody else
	}
	d := sweep.Decision{Interval: l.sweepInterval()}
	switch {
	case o.Left >= l.bands.Margin:
	case o.Left >= l.bands.Watch:
		d.Action = sweep.Keep
	default:
		d.Action, d.Target = sweep.Remove, slotATarget(name)
	}
	return d
}

// decideAligned decides about the record of an aligned window. Its client removes it a scale after
// its window has ended. The sweeper removes it if it is over for longer. If clocks differ, that may
// be later than the TTL allows: then the sweeper prolongs the record, which does not move the end
// of its window.
func (r *Rule[T]) decideAligned(name []byte, n Name, o sweep.Observation, now time.Time) sweep.Decision {
	t, ok := r.timing(n)
	if !ok || o.Left > t.ttl {
		return sweep.Decision{}
	}
	d := sweep.Decision{Interval: t.sweepInterval()}
	switch short := t.marginUnits() / 2; {
	case t.unusable(n.Bucket, now):
		d.Action, d.Target = sweep.Remove, string(name)
	case o.Left < short:
		d.Action, d.Increase = sweep.Prolong, t.marginUnits()-o.Left
	}
	return d
}

// layout returns the layout of a record's scale. It returns false if this version has none whose
// records have such names.
func (r *Rule[T]) layout(n Name) (*layout, bool) {
	if limits.CheckScale(n.Scale) != nil {
		return nil, false
	}
	l, ok := r.layouts.get(n.Scale, maxValue[T]())
	return l, ok && l.bands.Tag(n.Slot) == n.tag
}

// timing returns the timing of the scale of an aligned window's record.
func (r *Rule[T]) timing(n Name) (timing, bool) {
	if limits.CheckScale(n.Scale) != nil {
		return timing{}, false
	}
	t, ok := timingFor(n.Scale, n.Sliding, maxValue[T]())
	most := int64(maxTTL/n.Scale) - 4 // so that its end is a time
	return t, ok && -most < n.Bucket && n.Bucket < most
}

// sweepInterval returns at which interval a server that is not parked must be swept: three times
// while only sweepers remove a record.
func (l *layout) sweepInterval() time.Duration {
	left := time.Duration(l.bands.Watch)*l.bands.Unit - 4*l.bands.Guard - sweepMargin
	return max(left/3, time.Millisecond)
}

// unusable reports whether no client uses the name of a bucket's record again, if clocks differ by
// less than a scale, and requests take less than a few seconds.
func (t timing) unusable(bucket int64, now time.Time) bool {
	return !now.Before(t.useEnd(bucket).Add(min(5*time.Second, t.margin()/4)))
}

// margin returns for how long a record exists at least after its window is over for all clients.
func (t timing) margin() time.Duration {
	return time.Duration(t.ttl)*t.unit.Duration() - t.uses()*t.scale
}

// marginUnits returns the margin in units of the TTL, rounded down.
func (t timing) marginUnits() uint64 { return uint64(t.margin() / t.unit.Duration()) }

// sweepInterval returns at which interval a server that is not parked must be swept.
func (t timing) sweepInterval() time.Duration {
	return max((t.margin()-min(5*time.Second, t.margin()/4)-sweepMargin)/3, time.Millisecond)
}

// slotATarget returns what identifies the records that are removed together with a slot: the name
// of slot A.
func slotATarget(name []byte) string {
	t := bytes.Clone(name)
	t[2] = 'A'
	return string(t)
}
