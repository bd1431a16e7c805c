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
	f := make([]byte, 0, fieldSize)
	for i := range s.limits {
		f = s.gate.appendPolicy(f, &s.limits[i])
	}
	if s.place != nil {
		f = s.gate.appendPolicy(f, s.place)
	}
	return string(f)
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

// appendItem appends the beginning of an item to a list.
func appendItem(f []byte, item string) []byte {
	if len(f) > 0 {
		f = append(f, ", "...)
	}
	return append(f, item...)
}

// appendPolicy appends an item of the RateLimit-Policy field, unless the limit has none.
func (g *Gate) appendPolicy(f []byte, l *limitState) []byte {
	if l.limit.Max == throttr.Unlimited || l.limit.Shadow {
		return f
	}
	var quota uint64
	switch {
	case l.result != nil && l.result.Degraded: // a fallback counts up to the share of a process
		quota = l.result.Limit
	case l.limit.Max > 0:
		quota = cmp.Or(l.limit.Burst, l.limit.Max) // only token buckets have a Burst, also if the RateLimit says which are
	}
	f = strconv.AppendUint(append(appendItem(f, l.item), ";q="...), quota, 10)
	if l.places != nil {
		f = append(f, `;qu="concurrent-requests"`...)
	} else {
		f = strconv.AppendInt(append(f, ";w="...), Seconds(l.window(within(l.result))), 10)
	}
	return g.appendPartition(f, l)
}

// appendPartition appends the parameter pk, if the Gate has it.
func (g *Gate) appendPartition(f []byte, l *limitState) []byte {
	if !g.cfg.PartitionKey {
		return f
	}
	text := []byte(l.key.Text)
	if !l.key.Plain {
		sum := sha256.Sum256(text)
		text = sum[:partitionSize]
	}
	f = base64.StdEncoding.AppendEncode(append(f, ";pk=:"...), text)
	return append(f, ':')
}

// appendOutcome appends an item of the RateLimit field.
func (g *Gate) appendOutcome(f []byte, o *Outcome) []byte {
	f = strconv.AppendUint(append(appendItem(f, o.of.item), ";r="...), o.Remaining, 10)
	if left := o.Left(); left < throttr.Never {
		f = strconv.AppendInt(append(f, ";t="...), Seconds(left), 10)
	}
	return g.appendPartition(f, o.of)
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
