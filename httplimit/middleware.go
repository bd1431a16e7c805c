package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/throttr-go/throttr"
)

// middleware holds the validated arguments of [New].
type middleware struct {
	Config
	limiter *throttr.RateLimit
	plan    *Plan  // applies if Config.Plan returns nil
	prefix  string // of every key

	limiters sync.Map    // of *throttr.RateLimit, by limiterName
	hits     atomic.Bool // requests count as hits: CountRefusals is true, or the backend can't take
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
		w.Header().Set("Retry-After", retryAfter(d.Strictest.RetryAfter))
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
	return errors.Is(err, throttr.ErrRange) || errors.Is(err, throttr.ErrScale) || errors.Is(err, errors.ErrUnsupported)
}

// count counts a request in the limits of a plan.
func (m *middleware) count(r *http.Request, plan *Plan, key string) Decision {
	cost := m.Cost(r)
	if m.hits.Load() {
		return m.hit(r, plan, key, cost)
	}
	d := m.take(r, plan, key, cost)
	if !isMistake(d.Err) {
		return d
	}
	d.giveBack(r.Context()) // it is counted as hits, or not at all
	if errors.Is(d.Err, errors.ErrUnsupported) {
		m.hits.Store(true)
		return m.hit(r, plan, key, cost)
	}
	return d
}

// hit counts a request in the limits of a plan, up to the first that denies it. If counting in one
// limit fails, the others still apply.
func (m *middleware) hit(r *http.Request, plan *Plan, key string, cost uint64) Decision {
	d := Decision{Key: key, Allowed: true, Outcomes: make([]Outcome, 0, len(plan.limits))}
	var errs []error
	for _, l := range plan.limits {
		// An increment of limit+1 exceeds the limit as well as any larger one does, and a
		// backend may be unable to add a larger one.
		increment := min(cost, l.Limit.Limit+1)
		res, err := m.named(l).HitN(r.Context(), m.storedKey(l, key), l.Window, l.Limit.Limit, increment)
		if err != nil {
			errs = append(errs, err)
			if r.Context().Err() != nil {
				break
			}
			continue
		}
		d.add(Outcome{Name: l.Name, Window: l.Window, Result: res})
		if d.Allowed = res.Allowed; !d.Allowed {
			break
		}
	}
	d.Err = errors.Join(errs...)
	return d
}
