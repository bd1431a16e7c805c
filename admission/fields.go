package admission

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
)

// quotaUnits are the values of the parameter qu. The empty one is the default.
var quotaUnits = []string{"", "requests", "content-bytes", "concurrent-requests"}

// PolicyField returns the RateLimit-Policy field of draft-ietf-httpapi-ratelimit-headers-11, which has all
// limits of the request: a list of
//
//	"name";q=max;w=seconds
//
// with the parameters qu and pk by Config.QuotaUnit and Config.PartitionKey, and without limits that are
// throttr.Unlimited. That on requests in flight is the last: "name";q=max;qu="concurrent-requests". The result is
// empty if there are none.
func (d Decision) PolicyField() string {
	if d.plan == nil || d.Shadow {
		return ""
	}
	field, unit := d.plan.policy, d.gate.cfg.QuotaUnit
	if unit != "" {
		unit = ";qu=" + quote(unit)
	}
	if params := unit + d.partition(); params != "" {
		field = d.plan.policyField(params)
	}
	if d.inFlight == nil || d.inFlight.policy == "" {
		return field
	}
	if field != "" {
		field += ", "
	}
	return field + d.inFlight.policy + d.partition()
}

// LimitField returns the RateLimit field, which has the limits that have decided: a list of
//
//	"name";r=remaining;t=seconds
//
// with the parameter pk by Config.PartitionKey, and without t if waiting does not help.
func (d Decision) LimitField() string {
	if d.Shadow {
		return ""
	}
	var buf [128]byte
	b, at := buf[:0], 0
	if d.noPlace {
		b = d.appendItem(b, d.inFlight.item, &d.Strictest)
	}
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		for d.plan.limits[at].Name != o.Name { // Outcomes are in the order of the plan.
			at++
		}
		if o.Known() {
			b = d.appendItem(b, d.plan.items[at], o)
		}
	}
	return string(b)
}

// appendItem appends an item of the RateLimit field.
func (d *Decision) appendItem(b []byte, name string, o *Outcome) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = append(append(b, name...), ";r="...)
	b = strconv.AppendUint(b, o.Remaining, 10)
	if left := o.Left(); left < throttr.Never {
		b = strconv.AppendInt(append(b, ";t="...), Seconds(left), 10)
	}
	return append(b, d.partition()...)
}

// RetryAfterField returns the Retry-After field: seconds, rounded up. It is empty if the request is served
// or if waiting does not help.
func (d Decision) RetryAfterField() string {
	if d.RetryAfter == 0 || d.RetryAfter >= throttr.Never || d.Shadow {
		return ""
	}
	return strconv.FormatInt(Seconds(d.RetryAfter), 10)
}

// SetFields calls set with the names and values of the header fields RateLimit-Policy, RateLimit and
// Retry-After that are not empty: d.SetFields(w.Header().Set).
func (d Decision) SetFields(set func(name, value string)) {
	for _, field := range [...]struct{ name, value string }{
		{"RateLimit-Policy", d.PolicyField()}, {"RateLimit", d.LimitField()}, {"Retry-After", d.RetryAfterField()},
	} {
		if field.value != "" {
			set(field.name, field.value)
		}
	}
}

// partition returns the parameter pk, or "".
func (d Decision) partition() string {
	if !d.gate.cfg.PartitionKey {
		return ""
	}
	return ";pk=:" + base64.StdEncoding.EncodeToString(d.partitionKey()) + ":"
}

// policyField returns the RateLimit-Policy field, with further parameters of each limit.
func (p *Plan) policyField(params string) string {
	var items []string
	for _, item := range p.policies {
		if item != "" {
			items = append(items, item+params)
		}
	}
	return strings.Join(items, ", ")
}

// policyItem returns the item of a limit in the RateLimit-Policy field, or "".
func policyItem(name string, l *throttr.Limit) string {
	if l.Max == throttr.Unlimited || l.Shadow {
		return ""
	}
	return name + ";q=" + strconv.FormatUint(l.Max, 10) + ";w=" + strconv.FormatInt(Seconds(l.Scale), 10)
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
