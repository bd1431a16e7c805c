package httplimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
)

// Middleware limits the requests to the handlers that it wraps. These handlers share the limits.
// Make one with [NewMiddleware]. It is safe for concurrent use.
type Middleware struct {
	config Config // with its defaults
	gate   *admission.Gate
	admits gate // that of gate
}

// gate is an [admission.Gate] with a method for requests of HTTP.
type gate interface {
	// Admit admits a request. If it is granted at once, next is a copy of it, whose context has the decision, and d is
	// nil. Fields are the values of RateLimit-Policy and RateLimit, if these are wanted.
	Admit(r *http.Request, key string, plan *Plan, n uint64, wanted bool) (next *http.Request, fields *[2]string, d *Decision)
}

// Wrap returns a handler that limits the requests to next. It panics if next is nil.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: the handler to wrap is nil")
	}
	return &handler{m, next}
}

// Peek returns the state of the limits of a key without counting, in the order of the limits:
// whether a request of cost 1 would be allowed now, and how many were counted. The key is what
// Config.Key returns for the requests in question. Without limits, Peek returns those of
// Config.Limits. Use it to answer a customer who is denied:
//
//	outcomes, err := m.Peek(ctx, httplimit.HeaderKey("X-Api-Key", apiKey))
//
// The error is that of the backend.
func (m *Middleware) Peek(ctx context.Context, key string, limits ...throttr.Limit) ([]Outcome, error) {
	return m.gate.Peek(ctx, key, limits...)
}

// Reset ends the windows of a key, so that its next request opens others. The key and the limits
// are those of [Middleware.Peek]. On Throttr servers, other processes may deny for up to a second
// more, see [throttr.WithDenialMemory]. The error has those of all limits that could not be reset.
func (m *Middleware) Reset(ctx context.Context, key string, limits ...throttr.Limit) error {
	return m.gate.Reset(ctx, key, limits...)
}

// handler is a wrapped handler.
type handler struct {
	*Middleware
	next http.Handler
}

// ServeHTTP counts the request, and then serves it or responds to it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &h.config
	if c.Skip != nil && c.Skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	key := c.Key(r)
	var plan *Plan
	if c.Plan != nil {
		plan = c.Plan(r)
	}
	if key == "" && c.SkipEmptyKey || plan != nil && plan.Empty() {
		h.next.ServeHTTP(w, r)
		return
	}
	n := uint64(1)
	if c.Cost != nil {
		n = c.Cost(r)
	}
	granted, fields, d := h.admits.Admit(r, key, plan, n, !c.HideFields)
	if granted == nil {
		h.decided(w, r, d)
		return
	}
	header := w.Header()
	setFields(header, fields)
	if c.Legacy != LegacyNone {
		d, _ := FromContext(granted.Context())
		h.setLegacyFields(header, &d)
	}
	h.next.ServeHTTP(w, granted)
}

// decided responds to a request on which a decision was made, and returns its place.
func (h *handler) decided(w http.ResponseWriter, r *http.Request, d *Decision) {
	if d.Hold != nil && (r.Header["Upgrade"] != nil || r.Method == http.MethodConnect) {
		u := &upgrade{ResponseWriter: w, hold: d.Hold}
		defer u.done()
		h.respond(u, r, d)
		u.returned = true
		return
	}
	defer d.Hold.Release()
	h.respond(w, r, d)
}

// canceled responds to a request whose context ended before it was counted. After a deadline, the client may still
// wait for a response.
func (h *handler) canceled(w http.ResponseWriter, r *http.Request) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		w.WriteHeader(admission.Canceled.HTTPStatus())
		return
	}
	writeText(w, r, http.StatusServiceUnavailable, "Service unavailable.\n")
}

// respond responds to a request as it was decided.
func (h *handler) respond(w http.ResponseWriter, r *http.Request, d *Decision) {
	verdict := d.Verdict()
	if verdict == admission.Canceled {
		h.canceled(w, r)
		return
	}
	if !h.config.HideFields {
		setFields(w.Header(), &[2]string{d.PolicyField(), d.LimitField()})
	}
	h.setLegacyFields(w.Header(), d)
	denied := !d.Allowed && !d.Shadow
	switch { // without a copy of the request
	case verdict == admission.Misconfigured:
		writeText(w, r, verdict.HTTPStatus(), d.Text()+"\n")
		return
	case denied && h.config.OnDenied == nil:
		Deny(w, r, *d, h.next)
		return
	}
	r = r.WithContext(d.Context())
	switch {
	case denied:
		setRetryAfter(w.Header(), *d)
		h.config.OnDenied(w, r, *d, h.next)
	case d.Err != nil && !d.Shadow:
		h.config.OnFailure(w, r, *d, h.next)
	default:
		h.next.ServeHTTP(w, r)
	}
}
