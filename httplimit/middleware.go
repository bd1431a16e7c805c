package httplimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/throttr-go/throttr"
)

// middleware holds the validated arguments of [New].
type middleware struct {
	Config
	limiter *throttr.RateLimit
	plan    *Plan // applies if Config.Plan returns nil
}

// handler is a wrapped handler.
type handler struct {
	*middleware
	next http.Handler
}

// statusClientGone is the status of a response to a client that has disconnected. Only logs
// show it. The number is that of nginx.
const statusClientGone = 499

// ServeHTTP counts the request, and then serves it or responds to it.
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
	case isMistake(d.Err):
		writeText(w, r, http.StatusInternalServerError, "The rate limit is misconfigured.\n")
	case !d.Allowed:
		setRetryAfter(w.Header(), d.Strictest.RetryAfter)
		h.OnDenied(w, r, d, h.next)
	case d.Err != nil:
		h.OnFailure(w, r, d, h.next)
	default:
		h.next.ServeHTTP(w, r)
	}
}

// isMistake reports whether err says that the backend cannot keep a limit. To serve such
// requests would leave them without a limit for good.
func isMistake(err error) bool {
	return errors.Is(err, throttr.ErrRange) || errors.Is(err, throttr.ErrScale) || errors.Is(err, throttr.ErrUnsupported)
}

// count counts a request in the limits of a plan.
func (m *middleware) count(r *http.Request, plan *Plan, key string) Decision {
	cost := m.Cost(r)
	if !m.CountRefusals {
		return m.take(r, plan, key, cost)
	}
	d := m.each(r, plan, key, m.limiter.HitN, cost)
	d.hits = true
	return d
}
