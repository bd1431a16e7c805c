package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
)

// setFields sets the fields that describe the limits. Stacked middleware adds to those of the draft.
func (m *Middleware) setFields(header http.Header, d *Decision) {
	if !m.config.HideFields {
		values := []string{d.PolicyField(), d.LimitField()} // one array is for both fields
		addField(header, "Ratelimit-Policy", values[:1:1])
		addField(header, "Ratelimit", values[1:])
	}
	if s := &d.Strictest; m.config.Legacy != LegacyNone && s.Known() && s.Name != "" {
		m.setLegacyFields(header, s)
	}
}

// addField adds a value of a field whose name is in its canonical form, unless it is empty.
func addField(header http.Header, name string, value []string) {
	if value[0] == "" {
		return
	}
	if others := header[name]; len(others) > 0 {
		value = append(others, value...)
	}
	header[name] = value
}

// setLegacyFields sets the X-RateLimit fields.
func (m *Middleware) setLegacyFields(header http.Header, s *Outcome) {
	header.Set("X-Ratelimit-Limit", strconv.FormatUint(s.Limit, 10))
	header.Set("X-Ratelimit-Remaining", strconv.FormatUint(s.Remaining, 10))
	left := s.Left()
	if left >= throttr.Never || s.ResetAt.IsZero() { // there is no window, but perhaps no place
		header.Del("X-Ratelimit-Reset") // of middleware outside
		return
	}
	reset := admission.Seconds(left)
	if m.config.Legacy == LegacyUnix {
		at := s.ResetAt.Add(left - s.ResetAfter) // by the clock of the backend
		reset = admission.Seconds(time.Duration(at.UnixNano()))
	}
	header.Set("X-Ratelimit-Reset", strconv.FormatInt(reset, 10))
}
