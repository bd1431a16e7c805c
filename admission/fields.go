package admission

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
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
func (d *Decision) PolicyField() string {
	if d.within == nil || d.Shadow {
		return ""
	}
	a := d.within
	var f fieldWriter
	f.Grow(len(a.all) * itemSize)
	for i := range a.all {
		c := &a.all[i]
		if c.policy == "" {
			continue
		}
		f.item(c.policy)
		if c.limit.Calendar != 0 {
			f.number(";w=", Seconds(c.scale))
		}
		if c.places == nil {
			f.WriteString(a.gate.unit)
		}
		f.partition(a.gate, c.key)
	}
	return f.String()
}

// LimitField returns the RateLimit field, which has the limits that have decided: a list of
//
//	"name";r=remaining;t=seconds
//
// with the parameter pk by Config.PartitionKey, and without t if waiting does not help.
func (d *Decision) LimitField() string {
	if d.Shadow || d.within == nil {
		return ""
	}
	var f fieldWriter
	f.Grow((len(d.Outcomes) + 1) * itemSize)
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

// number writes a parameter.
func (f *fieldWriter) number(name string, n int64) {
	f.WriteString(name)
	f.WriteString(strconv.FormatInt(n, 10))
}

// partition writes the parameter pk, if the Gate has it.
func (f *fieldWriter) partition(g *Gate, k Key) {
	if g.cfg.PartitionKey {
		f.WriteString(";pk=:" + base64.StdEncoding.EncodeToString(k.partition()) + ":")
	}
}

// outcome writes an item of the RateLimit field.
func (f *fieldWriter) outcome(g *Gate, o *Outcome) {
	f.item(o.of.item)
	f.number(";r=", int64(o.Remaining))
	if left := o.Left(); left < throttr.Never {
		f.number(";t=", Seconds(left))
	}
	f.partition(g, o.of.key)
}

// RetryAfterField returns the Retry-After field: seconds, rounded up. It is empty if the request was counted
// or if waiting does not help.
func (d *Decision) RetryAfterField() string {
	if d.RetryAfter == 0 || d.RetryAfter >= throttr.Never || d.Shadow {
		return ""
	}
	return strconv.FormatInt(Seconds(d.RetryAfter), 10)
}

// AddFields calls add with the names and values of the header fields RateLimit-Policy, RateLimit and Retry-After that
// are not empty, the last one if the request is not served: d.AddFields(w.Header().Add). Gates that are stacked add
// to the fields of each other.
func (d *Decision) AddFields(add func(name, value string)) {
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
