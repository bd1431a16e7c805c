package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
)

// setFields sets the header fields that describe the limits.
func (m *middleware) setFields(header http.Header, plan *Plan, d *Decision) {
	if !m.HideFields {
		if plan.policy != "" {
			header.Add("RateLimit-Policy", plan.policy)
		}
		if field := m.limitField(plan, d); field != "" {
			header.Add("RateLimit", field)
		}
	}
	if m.Legacy == LegacyNone || !d.Strictest.known() || d.Strictest.Name == "" {
		return
	}
	s := &d.Strictest
	header.Set("X-RateLimit-Limit", strconv.FormatUint(s.Limit, 10))
	header.Set("X-RateLimit-Remaining", strconv.FormatUint(s.Remaining, 10))
	left := s.left()
	if left >= throttr.Never {
		return
	}
	reset := seconds(left)
	if m.Legacy == LegacyUnix {
		at := s.ResetAt.Add(left - s.ResetAfter) // by the clock of the backend
		if s.ResetAt.IsZero() {                  // there is no window
			at = time.Now().Add(left)
		}
		reset = seconds(time.Duration(at.UnixNano()))
	}
	header.Set("X-RateLimit-Reset", strconv.FormatInt(reset, 10))
}

// limitField returns the RateLimit field, a list of
//
//	"name";r=remaining;t=seconds
//
// without t if waiting does not help.
func (m *middleware) limitField(plan *Plan, d *Decision) string {
	var buf [128]byte
	b, at := buf[:0], 0
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		for plan.limits[at].Name != o.Name { // Outcomes are in the order of the plan.
			at++
		}
		if !o.known() {
			continue
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, plan.items[at]...), ";r="...)
		b = strconv.AppendUint(b, o.Remaining, 10)
		if left := o.left(); left < throttr.Never {
			b = strconv.AppendInt(append(b, ";t="...), seconds(left), 10)
		}
	}
	return string(b)
}

// left returns the time until the window ends, at most the whole scale. For a denial, the result agrees
// with Retry-After.
func (o *Outcome) left() time.Duration {
	switch {
	case !o.Allowed:
		return o.RetryAfter
	case o.ResetAt.IsZero(): // there is no window, and the next request opens one
		return o.Scale
	}
	return min(o.ResetAfter, o.Scale)
}

// policyField returns the RateLimit-Policy field, a list of
//
//	"name";q=limit;w=seconds
//
// without limits that are Unlimited.
func (p *Plan) policyField() string {
	var items []string
	for i, l := range p.limits {
		if l.Max != throttr.Unlimited {
			items = append(items, p.items[i]+";q="+strconv.FormatUint(l.Max, 10)+";w="+strconv.FormatInt(seconds(l.Scale), 10))
		}
	}
	return strings.Join(items, ", ")
}

// quote returns a string of printable ASCII in the syntax of structured fields (RFC 9651, 4.1.6).
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// retryAfter returns the Retry-After field.
func retryAfter(d time.Duration) string { return strconv.FormatInt(seconds(d), 10) }
