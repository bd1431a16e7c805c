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
	keys   admission.KeyFuncs[KeyFunc]
}

// Wrap returns a handler that limits the requests to next. It panics if next is nil.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	if f, ok := next.(http.HandlerFunc); next == nil || ok && f == nil {
		panic("httplimit: the handler to wrap is nil")
	}
	return &handler{m, next}
}

// Check returns an error if the response to requests of a plan would be 500: the backend can't keep one of its limits,
// or one has no key in a Config.KeyOf that has others, or there is no Config.Places for it. It matches
// [throttr.ErrConfig].
func (m *Middleware) Check(p *Plan) error { return m.gate.Check(p) }

// Peek returns the state of the limits of a request without counting, the shortest scale first, whatever their order in
// Config: whether one of cost 1 would be allowed now, and how many were counted. Use it to answer a customer who is
// denied:
//
//	key := httplimit.Key{Text: httplimit.HeaderKey("X-Api-Key", apiKey)}
//	outcomes, err := m.Peek(ctx, httplimit.Request{Key: key})
//
// Its Key has the text that Config.Key returns for the requests in question, its Keys those of Config.KeyOf, but for
// [Everyone]. Of a client that is known by its address, it has the Addr. The error is that of the backend, or matches
// [throttr.ErrConfig]: Keys lacks one.
func (m *Middleware) Peek(ctx context.Context, r Request) ([]Outcome, error) {
	return m.gate.Peek(ctx, r)
}

// Reset ends the windows of a request, as [Middleware.Peek] describes it, so that the next one opens others: see
// [admission.Gate.Reset]. Those of [Everyone] go on.
func (m *Middleware) Reset(ctx context.Context, r Request) error { return m.gate.Reset(ctx, r) }

// StoredKey returns the key that the backend sees: for RateLimit.Forget, and for the throttr command.
func (m *Middleware) StoredKey(k Key) string { return m.gate.StoredKey(k) }

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
	d := h.gate.Admit(r.Context(), h.request(r))
	defer d.Done()
	if c.GiveBack == nil {
		h.respond(w, r, d)
		return
	}
	recorded := &writer{ResponseWriter: w}
	returned := false
	defer func() { h.giveBack(r, d, recorded.statusOf(returned)) }()
	h.respond(recorded, r, d)
	returned = true
}

// giveBack gives back what a request was counted, if Config.GiveBack says so. A request that was denied, or whose
// client has left, is not asked about.
func (h *handler) giveBack(r *http.Request, d *Decision, status int) {
	left := errors.Is(r.Context().Err(), context.Canceled) // if it were asked, a client could leave and not be counted
	if d.Allowed && !left && h.config.GiveBack(r, status) {
		d.GiveBackLater()
	}
}

// request returns what the Gate decides on.
func (m *Middleware) request(r *http.Request) Request {
	c := &m.config
	req := m.keys.Request(func(f KeyFunc) string { return f(r) })
	if c.Plan != nil {
		if req.Plan, req.PlanErr = c.Plan(r); req.PlanErr != nil {
			req.Plan = nil
		}
	}
	if c.Cost != nil {
		req.Cost = func(l throttr.Limit) uint64 { return c.Cost(r, l) }
	}
	return req
}

// respond responds to a request as it was decided.
func (h *handler) respond(w http.ResponseWriter, r *http.Request, d *Decision) {
	verdict := d.Verdict()
	if verdict == admission.Canceled {
		h.canceled(w, r)
		return
	}
	h.setFields(w.Header(), d)
	if verdict == admission.Misconfigured {
		write(w, r, verdict.HTTPStatus(), plainText, d.Text()+"\n")
		return
	}
	of := r
	r = of.WithContext(d.Context())
	defer func() {
		of.MultipartForm = r.MultipartForm // of which the server removes the files
		of.Pattern = r.Pattern             // by which middleware outside names the route
	}()
	switch {
	case d.Allowed && d.Err == nil:
		h.next.ServeHTTP(w, r)
	case d.Allowed:
		h.config.OnFailure(w, r, *d, h.next)
	default:
		setRetryAfter(w.Header(), d)
		h.config.OnDenied(w, r, *d, h.next)
	}
}

// canceled responds to a request whose context ended before it was counted. After a deadline, the client may still
// wait for a response.
func (h *handler) canceled(w http.ResponseWriter, r *http.Request) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		w.WriteHeader(admission.Canceled.HTTPStatus())
		return
	}
	write(w, r, http.StatusServiceUnavailable, plainText, "Service unavailable.\n")
}
