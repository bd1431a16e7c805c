package httplimit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"

	"github.com/throttr-go/throttr"
)

// middleware is what [New] has made of its arguments.
type middleware struct {
	Config
	limiter *throttr.RateLimit
	plan    *Plan  // where Config.Plan returns nil
	prefix  string // of every key
}

// handler is a wrapped handler.
type handler struct {
	*middleware
	next http.Handler
}

// statusClientGone is what a request is answered with whose client has left. Nobody reads
// it but logs, where it is known from nginx.
const statusClientGone = 499

// ServeHTTP counts the request and has it answered.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.Skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	key := h.Key(r)
	plan := h.Plan(r)
	if plan == nil {
		plan = h.plan
	}
	if key == "" && h.SkipEmptyKey || len(plan.limits) == 0 {
		h.next.ServeHTTP(w, r)
		return
	}
	d := h.count(r, plan, key)
	if d.Err != nil && errors.Is(r.Context().Err(), context.Canceled) {
		w.WriteHeader(statusClientGone)
		return
	}
	h.setFields(w.Header(), plan, &d)
	r = r.WithContext(newContext(r.Context(), d))
	switch {
	case !d.Allowed:
		w.Header().Set("Retry-After", retryAfter(d.Strictest.RetryAfter))
		h.OnDenied(w, r, d, h.next)
	case errors.Is(d.Err, throttr.ErrRange):
		writeText(w, r, http.StatusInternalServerError, "The rate limit is misconfigured.\n")
	case d.Err != nil:
		h.OnFailure(w, r, d, h.next)
	default:
		h.next.ServeHTTP(w, r)
	}
}

// count counts a request in a plan's limits, up to the first that denies it. One that can't
// be counted in does not keep the next from denying.
func (m *middleware) count(r *http.Request, plan *Plan, key string) Decision {
	d := Decision{Key: key, Allowed: true, Outcomes: make([]Outcome, 0, len(plan.limits))}
	cost, stored := m.Cost(r), storedKey(key)
	var errs []error
	for _, l := range plan.limits {
		// More than fills the window is no different from what just fills it, except
		// that a backend may not be able to add it.
		increment := min(cost, l.Limit.Limit+1)
		res, err := m.limiter.HitN(r.Context(), m.prefix+l.keyPart+stored, l.Window, l.Limit.Limit, increment)
		if err != nil {
			errs = append(errs, err)
			if r.Context().Err() != nil {
				break
			}
			continue
		}
		d.add(Outcome{Name: l.Name, Window: l.Window, Result: res})
		if !res.Allowed {
			break
		}
	}
	d.Err = errors.Join(errs...)
	return d
}

// maxKey is the longest key in bytes that is stored as it is.
const maxKey = 128

// storedKey returns the end of the key that the backend knows. What is before it, and has
// lengths in it, keeps middleware and limits apart, whatever their names; the first
// character keeps a key that looks like a digest apart from one that is.
func storedKey(key string) string {
	if len(key) <= maxKey {
		return "k" + key
	}
	sum := sha256.Sum256([]byte(key))
	return "h" + base64.RawURLEncoding.EncodeToString(sum[:])
}
