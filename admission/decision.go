package admission

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/limits"
)

// Decision is the decision on a request.
type Decision struct {
	Allowed bool // no limit has denied the request

	// Strictest is the outcome of the limit that has denied the request, and of several the one
	// with the longest RetryAfter. If none has, it is the outcome with the least remaining, and
	// of two with the same remaining the one whose window ends later: a client that waits for that is not denied by the
	// other. It is the zero Outcome if the backend has failed for all limits, or all are Unlimited.
	Strictest Outcome
	// Outcomes are those of all limits of the request, the shortest scale first. With Config.CountRefusals, they
	// are those in which the request was counted, up to the one that has denied it.
	Outcomes []Outcome
	// Err says why the request could not be counted in some limits. It is nil if it was counted in all of them. A
	// request that is denied may have one, too: with Config.CountRefusals, of a limit before the one that has denied it.
	Err error
	// RetryAfter is after which time the client should try again, if the request was denied or could not
	// be counted, with Config.Jitter. It is throttr.Never if waiting does not help.
	RetryAfter time.Duration
	// Hold is the place of the request, see Config.InFlight. It is nil if there is no such limit, or the request was
	// denied, or the place could not be decided.
	Hold *inflight.Hold

	verdict Verdict       // 0 in the zero Decision
	state   *requestState // nil in the zero Decision
}

// Done releases the place of the request, and settles what [Decision.Commit] has said. Only the first call does
// something. Adapters call it when the request has been served, also if its handler panics.
func (d *Decision) Done() {
	if d.state != nil {
		defer d.state.done() // also if an observer of the Release panics
	}
	d.Hold.Release()
}

// Context returns the context of Admit with the decision, for [FromContext]. It also ends when the request loses
// its place: then [context.Cause] is [inflight.ErrLost]. Handlers are called with it. That of a request without limits
// is the context of Admit, and that of the zero Decision is [context.Background].
func (d *Decision) Context() context.Context {
	switch {
	case d.state == nil:
		return context.Background()
	case d.state.exempt():
		return d.state.Context
	}
	return d.state
}

// noPlace reports whether there was no place for the request.
func (d *Decision) noPlace() bool { return d.Strictest.of != nil && d.Strictest.of.places != nil }

// Denied returns the outcomes of the limits that have denied the request.
func (d *Decision) Denied() []Outcome {
	if d.noPlace() {
		return []Outcome{d.Strictest}
	}
	return slices.DeleteFunc(slices.Clone(d.Outcomes), func(o Outcome) bool { return o.Allowed })
}

// Outcome is the result of one limit for a request. As JSON, it is
//
//	{"name":"minute","key":"192.0.2.1","scale":60,"allowed":true,"count":1,"limit":10,"remaining":9,
//	 "reset_after":60,"reset_at":"2030-01-02T03:04:05Z"}
//
// with retry_after of a denial, and degraded. Durations are seconds. Those that are 0 or throttr.Never are left out,
// and so is a zero time. The key is [Outcome.Partition].
type Outcome struct {
	Name  string        // of the limit
	Key   string        // under which the request was counted
	Scale time.Duration // the length of the window; 0: it is a limit on requests in flight
	// Result is Degraded if the backend has failed and a policy or a fallback has decided.
	throttr.Result

	of *limitState // nil: the zero Outcome
}

// String formats the outcome, with the name of the limit.
func (o Outcome) String() string { return o.Name + ": " + o.Result.String() }

// Err returns a [*throttr.RateLimitError] with the limit and the [Outcome.Partition] if o is a denial, and nil
// otherwise.
func (o Outcome) Err() error {
	if o.Allowed || o.of == nil {
		return o.Result.Err()
	}
	return &throttr.RateLimitError{Key: o.Partition(), Limit: o.of.limit, Result: o.Result}
}

// MarshalJSON returns the outcome as JSON.
func (o Outcome) MarshalJSON() ([]byte, error) {
	seconds := func(d time.Duration) float64 {
		if d >= throttr.Never {
			return 0
		}
		return d.Seconds()
	}
	return json.Marshal(struct {
		Name       string    `json:"name"`
		Key        string    `json:"key"`
		Scale      float64   `json:"scale,omitempty"`
		Allowed    bool      `json:"allowed"`
		Degraded   bool      `json:"degraded,omitempty"`
		Count      uint64    `json:"count"`
		Limit      uint64    `json:"limit"`
		Remaining  uint64    `json:"remaining"`
		RetryAfter float64   `json:"retry_after,omitempty"`
		ResetAfter float64   `json:"reset_after,omitempty"`
		ResetAt    time.Time `json:"reset_at,omitzero"`
	}{
		o.Name, o.Partition(), seconds(o.Scale), o.Allowed, o.Degraded, o.Count, o.Limit, o.Remaining,
		seconds(o.RetryAfter), seconds(o.ResetAfter), o.ResetAt,
	})
}

// Partition returns what tells the client apart from others in the limit, and may be shown to it: the key if it is
// plain, and otherwise the first 12 bytes of its SHA-256 digest, in base64.
func (o *Outcome) Partition() string {
	if o.of != nil && o.of.key.Plain {
		return o.Key
	}
	return Digest(o.Key)[:base64.RawURLEncoding.EncodedLen(partitionSize)]
}

// Quota describes the limit, as [throttr.Limit.String] does, without its name: "100 in 1m0s", "10000 in a month of
// UTC", "3 at a time".
func (o *Outcome) Quota() string {
	if o.of == nil {
		return ""
	}
	l := o.of.limit
	l.Name = ""
	return l.String()
}

// Known reports whether the result describes a window. It does not if a policy has decided, if a request
// costs more than a limit can ever grant, so that no store was asked, or if the limit is Unlimited.
func (o *Outcome) Known() bool {
	return o.Limit != throttr.Unlimited && (o.Count > 0 || o.Remaining > 0 || o.Limit == 0)
}

// Left returns the time until the window ends; for a denial, RetryAfter. With rolling algorithms it is the time until
// the whole quota is there again: of a sliding window, up to twice its scale.
func (o *Outcome) Left() time.Duration {
	switch {
	case !o.Allowed:
		return o.RetryAfter
	case o.ResetAt.IsZero() && o.of != nil: // there is no window, and the next request opens one
		return o.of.left(time.Now())
	}
	return o.ResetAfter
}

// add adds the outcome of another limit, whose scale is not shorter than the last one's. It does not decide:
// Allowed is what the RateLimit says of all limits. Clients are not told of shadow limits.
func (d *Decision) add(l *limitState) {
	if l.limit.Shadow {
		return
	}
	d.Outcomes = append(d.Outcomes, l.outcome(*l.result))
	o := &d.Outcomes[len(d.Outcomes)-1]
	s := &d.Strictest
	none := s.Name == ""
	switch {
	case !o.Allowed:
		if none || s.Allowed || o.RetryAfter > s.RetryAfter {
			*s = *o
		}
	case o.Known() && (none || s.Allowed && o.isStricter(s)):
		*s = *o
	}
}

// isStricter reports whether less remains than of another limit that has not denied, or as much, and the window does
// not end before the other's.
func (o *Outcome) isStricter(other *Outcome) bool {
	return o.Remaining < other.Remaining || o.Remaining == other.Remaining && o.Left() >= other.Left()
}

// outcome returns the outcome of a result.
func (l *limitState) outcome(res throttr.Result) Outcome {
	scale := limits.Length(&l.limit, timeIn(&res))
	return Outcome{Name: l.limit.Name, Key: l.key.Text, Scale: scale, Result: res, of: l}
}

// timeIn returns a time in the window of a result, or now if it has none.
func timeIn(res *throttr.Result) time.Time {
	if res == nil || res.ResetAt.IsZero() {
		return time.Now()
	}
	return res.ResetAt.Add(-1) // the end itself is in the next window
}

// noPlaceFor is the RetryAfter of a request for which there is no place. When there will be one is not known.
const noPlaceFor = time.Second

// inUse returns the outcome of a limit on requests in flight, with so many places in use, and free.
func (l *limitState) inUse(used, free uint64) Outcome {
	res := throttr.Result{Allowed: free > 0, Limit: l.limit.Max, Count: used, Remaining: free}
	switch {
	case l.limit.Max == 0:
		res.RetryAfter = throttr.Never
	case free == 0:
		res.RetryAfter = noPlaceFor
	}
	return l.outcome(res)
}

// FromContext returns the decision on the request whose context is ctx. If several Gates have counted the
// request, it is the decision of the innermost one. FromContext returns false if no limit applied to the request.
// The caller must not modify Outcomes.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(contextKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *d, true
}
