package admission

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
)

// PolicyField returns the RateLimit-Policy field of draft-ietf-httpapi-ratelimit-headers-11, which has all
// limits of the request: a list of
//
//	"name";q=max;w=seconds
//
// with the parameter pk by Config.PartitionKey, and without limits that are throttr.Unlimited. Of a token bucket, q is
// the burst, and w the time in which an empty one fills; of a calendar window, w is its own length. While a fallback
// decides, q is what it holds, see [throttr.WithProcesses], of limits that it was asked for. The limit on requests in
// flight is the last: "name";q=max;qu="concurrent-requests". The result is empty if there are none.
func (d *Decision) PolicyField() string {
	if d.state == nil {
		return ""
	}
	s := d.state
	items := make([]string, 0, 8)
	for i := range s.limits {
		items = s.gate.appendPolicy(items, &s.limits[i])
	}
	if s.place != nil {
		items = s.gate.appendPolicy(items, s.place)
	}
	return strings.Join(items, ", ")
}

// LimitField returns the RateLimit field, which has the limits that have decided: a list of
//
//	"name";r=remaining;t=seconds
//
// with the parameter pk by Config.PartitionKey, and without t if waiting does not help.
func (d *Decision) LimitField() string {
	if d.state == nil {
		return ""
	}
	f := make([]byte, 0, fieldSize)
	if d.noPlace() {
		f = d.state.gate.appendOutcome(f, &d.Strictest)
	}
	for i := range d.Outcomes {
		if o := &d.Outcomes[i]; o.of != nil && o.Known() { // a program may add others
			f = d.state.gate.appendOutcome(f, o)
		}
	}
	return string(f)
}

// fieldSize is how long most fields are at most, in bytes.
const fieldSize = 128

// item returns how an item of a list begins: with a name in the syntax of structured fields (RFC 9651, 4.1.6).
func item(name string) string { return `"` + escaper.Replace(name) + `"` }

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// appendPolicy appends the item of a limit in the RateLimit-Policy field, unless it has none.
func (g *Gate) appendPolicy(items []string, l *limitState) []string {
	item := l.policy
	if item == "" || l.result != nil && l.result.Degraded { // a fallback counts up to the share of a process
		item = l.policyItem(l.result)
	}
	if item == "" {
		return items
	}
	return append(items, item+g.partition(l))
}

// policyItem returns the item of a limit in the RateLimit-Policy field, for the window of a result, or the present one
// if it is nil.
func (p *planned) policyItem(res *throttr.Result) string {
	if p.limit.Max == throttr.Unlimited || p.limit.Shadow {
		return ""
	}
	var quota uint64
	switch {
	case res != nil && res.Degraded:
		quota = res.Limit
	case p.limit.Max > 0:
		// Only token buckets have a Burst, also if the RateLimit says which are.
		quota = cmp.Or(p.limit.Burst, p.limit.Max)
	}
	f := p.item + ";q=" + strconv.FormatUint(quota, 10)
	if p.places != nil {
		return f + `;qu="concurrent-requests"`
	}
	return f + ";w=" + strconv.FormatInt(Seconds(p.window(timeIn(res))), 10)
}

// partition returns the parameter pk, if the Gate has it.
func (g *Gate) partition(l *limitState) string {
	if !g.cfg.PartitionKey {
		return ""
	}
	text := []byte(l.key.Text)
	if !l.key.Plain {
		sum := sha256.Sum256(text)
		text = sum[:partitionSize]
	}
	return ";pk=:" + base64.StdEncoding.EncodeToString(text) + ":"
}

// appendOutcome appends an item of the RateLimit field.
func (g *Gate) appendOutcome(f []byte, o *Outcome) []byte {
	if len(f) > 0 {
		f = append(f, ", "...)
	}
	f = strconv.AppendUint(append(append(f, o.of.item...), ";r="...), o.Remaining, 10)
	if left := o.Left(); left < throttr.Never {
		f = strconv.AppendInt(append(f, ";t="...), Seconds(left), 10)
	}
	return append(f, g.partition(o.of)...)
}

// RetryAfterField returns the Retry-After field: seconds, rounded up. It is empty if the request was counted
// or if waiting does not help.
func (d *Decision) RetryAfterField() string {
	if d.RetryAfter == 0 || d.RetryAfter >= throttr.Never {
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

// Seconds returns d in seconds, rounded up, as header fields have it.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
