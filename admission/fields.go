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
// throttr.Unlimited. That on requests in flight is the last: "name";q=max;qu="concurrent-requests". The result is
// empty if there are none.
func (d Decision) PolicyField() string {
	if d.plan == nil || d.Shadow {
		return ""
	}
	field, pk := d.plan.policy[d.gate.unit], d.partition()
	if pk != "" {
		field = d.plan.policyField(d.gate.unit, pk)
	}
	if d.inFlight == nil || d.inFlight.policy == "" {
		return field
	}
	if field != "" {
		field += ", "
	}
	return field + d.inFlight.policy + pk
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
	b, at, pk := buf[:0], 0, d.partition()
	if d.noPlace {
		b = append(appendItem(b, d.inFlight.item, 0, &d.Strictest.Result), pk...)
	}
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		for d.plan.limits[at].Name != o.Name { // Outcomes are in the order of the plan.
			at++
		}
		if o.Known() {
			b = append(appendItem(b, d.plan.items[at], o.Scale, &o.Result), pk...)
		}
	}
	return string(b)
}

// roomPerItem is room for what appendItem appends to a name, unless the numbers are very large.
const roomPerItem = len(", ;r=1000000;t=86400")

// appendItem appends an item of the RateLimit field.
func appendItem(b []byte, name string, scale time.Duration, res *throttr.Result) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = append(append(b, name...), ";r="...)
	b = strconv.AppendUint(b, res.Remaining, 10)
	if left := left(res, scale); left < throttr.Never {
		b = strconv.AppendInt(append(b, ";t="...), Seconds(left), 10)
	}
	return b
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
func (d *Decision) partition() string {
	if d.gate == nil || !d.gate.cfg.PartitionKey {
		return ""
	}
	return ";pk=:" + base64.StdEncoding.EncodeToString(d.partitionKey()) + ":"
}

// policyField returns the RateLimit-Policy field, with a unit and further parameters of each limit.
func (p *Plan) policyField(unit int, params string) string {
	if unit != 0 {
		params = ";qu=" + quote(quotaUnits[unit]) + params
	}
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
