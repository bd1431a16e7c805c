package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// setFields sets the header fields that describe the limits.
func (m *middleware) setFields(header http.Header, plan *Plan, d *Decision) {
	if !m.HideFields {
		header.Add("RateLimit-Policy", plan.policy)
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
	reset := seconds(m.left(s))
	if m.Legacy == LegacyUnix {
		at := s.ResetAt.Add(m.left(s) - s.ResetAfter) // by the clock of the backend
		if s.ResetAt.IsZero() {                       // there is no window
			at = m.Clock().Add(m.left(s))
		}
		reset = at.Unix()
		if at.Nanosecond() > 0 {
			reset++
		}
	}
	header.Set("X-RateLimit-Reset", strconv.FormatInt(reset, 10))
}

// limitField returns the RateLimit field, a list of
//
//	"name";r=remaining;t=seconds
func (m *middleware) limitField(plan *Plan, d *Decision) string {
	var buf [128]byte
	b := buf[:0]
	limits := plan.limits
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		for limits[0].Name != o.Name { // Outcomes are in the order of the plan.
			limits = limits[1:]
		}
		if !o.known() {
			continue
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, limits[0].item...), ";r="...)
		b = append(strconv.AppendUint(b, o.Remaining, 10), ";t="...)
		b = strconv.AppendInt(b, seconds(m.left(o)), 10)
	}
	return string(b)
}

// left returns the time until the window ends, at most the whole scale. It reads no clock: that of the
// backend may differ. For a denial, the result agrees with Retry-After.
func (m *middleware) left(o *Outcome) time.Duration {
	switch {
	case !o.Allowed:
		return o.RetryAfter
	case o.ResetAt.IsZero(): // there is no window, and the next request opens one
		return o.Window
	}
	return min(o.ResetAfter, o.Window)
}

// policyField returns the RateLimit-Policy field, a list of
//
//	"name";q=limit;w=seconds
func policyField(limits []planned) string {
	items := make([]string, len(limits))
	for i, l := range limits {
		items[i] = l.item + ";q=" + strconv.FormatUint(l.Limit.Limit, 10) +
			";w=" + strconv.FormatInt(seconds(l.Window), 10)
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

// retryAfter returns the Retry-After field, at least 1. After 0 a client would retry at once.
func retryAfter(d time.Duration) string { return strconv.FormatInt(max(1, seconds(d)), 10) }
