package admission

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
)

// quotaUnits are the values of the parameter qu. The empty one is the default.
var quotaUnits = [...]string{"", "requests", "content-bytes", "concurrent-requests"}

// PolicyField returns the RateLimit-Policy field of draft-ietf-httpapi-ratelimit-headers-11, which has all
// limits of the request: a list of
//
//	"name";q=max;w=seconds
//
// with the parameters qu and pk by Config.QuotaUnit and Config.PartitionKey, and without limits that are
// throttr.Unlimited. Of a token bucket, q is the burst, and w the time in which an empty one fills; of a calendar
// window, w is its own length. The limit on requests in flight is the last: "name";q=max;qu="concurrent-requests".
// The result is empty if there are none.
func (d Decision) PolicyField() string {
	if d.within == nil || d.Shadow {
		return ""
	}
	a := d.within
	var f fieldWriter
	f.Grow(len(a.limits) * itemSize)
	for i := range a.limits {
		f.policy(&d, &a.limits[i])
	}
	if a.place != nil {
		f.policy(&d, a.place)
	}
	return f.String()
}

// lengthOf returns the length of the window of a limit that has a Calendar.
func (d *Decision) lengthOf(l *throttr.Limit) time.Duration {
	for i := range d.Outcomes {
		if d.Outcomes[i].Name == l.Name {
			return d.Outcomes[i].Scale
		}
	}
	return limits.Length(l, time.Now())
}

// LimitField returns the RateLimit field, which has the limits that have decided: a list of
//
//	"name";r=remaining;t=seconds
//
// with the parameter pk by Config.PartitionKey, and without t if waiting does not help.
func (d Decision) LimitField() string {
	if d.Shadow || d.within == nil {
		return ""
	}
	var f fieldWriter
	f.Grow(len(d.Outcomes) * itemSize)
	if d.noPlace {
		f.outcome(d.within.gate, &d.Strictest)
	}
	for i := range d.Outcomes {
		if d.Outcomes[i].Known() {
			f.outcome(d.within.gate, &d.Outcomes[i])
		}
	}
	return f.String()
}

// itemSize is about the length in bytes of an item without pk.
const itemSize = 32

// fieldWriter writes a list of structured fields.
type fieldWriter struct{ strings.Builder }

// item begins an item.
func (f *fieldWriter) item(text string) {
	if f.Len() > 0 {
		f.WriteString(", ")
	}
	f.WriteString(text)
}

// policy writes an item of the RateLimit-Policy field.
func (f *fieldWriter) policy(d *Decision, c *counted) {
	if c.policy == "" {
		return
	}
	f.item(c.policy)
	if c.limit.Calendar != 0 {
		f.WriteString(";w=")
		f.WriteString(strconv.FormatInt(Seconds(d.lengthOf(&c.limit)), 10))
	}
	if c.places == nil {
		f.WriteString(d.within.gate.unit)
	}
	f.WriteString(d.within.gate.partition(c.key.Text, c.plain))
}

// outcome writes an item of the RateLimit field.
func (f *fieldWriter) outcome(g *Gate, o *Outcome) {
	f.item(o.of.item)
	f.WriteString(";r=")
	f.WriteString(strconv.FormatUint(o.Remaining, 10))
	if left := o.Left(); left < throttr.Never {
		f.WriteString(";t=")
		f.WriteString(strconv.FormatInt(Seconds(left), 10))
	}
	f.WriteString(g.partition(o.Key, o.plain))
}

// partition returns the parameter pk, or "".
func (g *Gate) partition(text string, plain bool) string {
	if !g.cfg.PartitionKey {
		return ""
	}
	return ";pk=:" + base64.StdEncoding.EncodeToString(partition(text, plain)) + ":"
}

// RetryAfterField returns the Retry-After field: seconds, rounded up. It is empty if the request was counted
// or if waiting does not help.
func (d Decision) RetryAfterField() string {
	if d.RetryAfter == 0 || d.RetryAfter >= throttr.Never || d.Shadow {
		return ""
	}
	return strconv.FormatInt(Seconds(d.RetryAfter), 10)
}

// AddFields calls add with the names and values of the header fields RateLimit-Policy, RateLimit and Retry-After that
// are not empty, the last one if the request is not served: d.AddFields(w.Header().Add). Gates that are stacked add
// to the fields of each other.
func (d Decision) AddFields(add func(name, value string)) {
	for _, field := range [...]struct{ name, value string }{
		{"RateLimit-Policy", d.PolicyField()}, {"RateLimit", d.LimitField()}, {"Retry-After", d.RetryAfterField()},
	} {
		if field.value != "" && (field.name != "Retry-After" || d.Verdict() != Serve) {
			add(field.name, field.value)
		}
	}
}

// quote returns a string of printable ASCII in the syntax of structured fields (RFC 9651, 4.1.6).
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// Seconds returns d in seconds, rounded up, as header fields have it.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
