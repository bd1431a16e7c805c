package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
)

// setFields sets the header fields that describe the limits.
func (m *Middleware) setFields(header http.Header, d *admission.Decision) {
	if !m.config.HideFields {
		values := make([]string, 0, 2) // of both fields, in one allocation
		for _, field := range [...]struct{ name, value string }{{"Ratelimit-Policy", d.PolicyField()}, {"Ratelimit", d.LimitField()}} {
			if field.value == "" {
				continue
			}
			if values = append(values, field.value); header[field.name] == nil {
				header[field.name] = values[len(values)-1 : len(values) : len(values)]
			} else {
				header.Add(field.name, field.value)
			}
		}
	}
	s := &d.Strictest
	if m.config.Legacy == LegacyNone || d.Shadow || !s.Known() || s.Name == "" {
		return
	}
	header.Set("X-Ratelimit-Limit", strconv.FormatUint(s.Limit, 10))
	header.Set("X-Ratelimit-Remaining", strconv.FormatUint(s.Remaining, 10))
	left := s.Left()
	if left >= throttr.Never {
		return
	}
	reset := admission.Seconds(left)
	if m.config.Legacy == LegacyUnix {
		at := s.ResetAt.Add(left - s.ResetAfter) // by the clock of the backend
		if s.ResetAt.IsZero() {                  // there is no window
			at = time.Now().Add(left)
		}
		reset = admission.Seconds(time.Duration(at.UnixNano()))
	}
	header.Set("X-Ratelimit-Reset", strconv.FormatInt(reset, 10))
}
