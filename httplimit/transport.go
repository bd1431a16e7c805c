package httplimit

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/internal/limits"
)

// TransportConfig configures a [Transport]. All fields have defaults.
type TransportConfig struct {
	// Limits are what the API allows: at most Max in any interval of a Scale, wherever it begins. Their
	// algorithm is throttr.SlidingLog, also if it is 0, or throttr.TokenBucket: see the bounds of Transport.
	// A limit on requests and one on the tokens of a language model are two limits. Default: none; the
	// Transport then only pauses when the API says so.
	Limits []throttr.Limit

	// Key returns whose limits a request is counted in, such as a host or an account. Requests with an empty
	// key are sent at once. Default: the host of the URL in lower case, and the port unless it is that of the scheme.
	Key KeyFunc

	// Cost returns what a request counts in a limit, or the most that it may. Of 0, it does not count there.
	// Default: 1.
	Cost func(r *http.Request, l throttr.Limit) uint64

	// Actual returns what a request has really counted in a limit, of which Cost had been taken, once the
	// header of its response is there. Less is given back, and more is counted, whatever the limit says. It
	// may read the body of the response if it replaces it. Default: Cost.
	Actual func(res *http.Response, l throttr.Limit, cost uint64) uint64

	// Margin is how much longer one request may take than another from the answer of the limiter to its arrival at
	// the API, with its connection: it is added to each Scale. At most an hour. Default: 50 ms, of which a limit of a
	// second loses 5 %.
	Margin time.Duration

	// Pause returns for how long no request of the key may be sent after a response, in any process.
	// Default: [Pause].
	Pause func(*http.Response) time.Duration
	// MaxPause bounds pauses, with what is added to them. Default: an hour.
	MaxPause time.Duration

	// Retries is how often a request is sent again that was answered with 429, or with 503 and a pause or a
	// Retry-After, which may be 0: after the pause, and in line. Only requests whose method is idempotent, or that
	// have the field Idempotency-Key, and whose body can be sent again (GetBody) are. Default: 0, the response is
	// returned.
	Retries int

	// Base sends the requests. Default: [http.DefaultTransport].
	Base http.RoundTripper
}

// The defaults of TransportConfig.
const (
	defaultMargin   = 50 * time.Millisecond
	defaultMaxPause = time.Hour
	maxMargin       = time.Hour
)

// Transport is an [http.RoundTripper] that keeps to the limits of somebody else's API, together with all
// processes that share the backend of its RateLimit:
//
//	client := http.Client{Transport: transport}
//
// A request waits for its turn: see [throttr.RateLimit.WaitAll], which bounds the line
// ([throttr.WithMaxWaiters]) and fails at once if the turn comes after the deadline of the request's
// context. If it fails, RoundTrip returns its error and sends nothing. In a process, the requests of a key are granted
// one after the other, each in a round trip to the store, which is what bounds their number if the Limits do not.
//
// # Bounds
//
// What arrives at the API in any interval of a Scale is at most
//   - Max of a throttr.SlidingLog
//   - Burst + Max of a throttr.TokenBucket, so an API that allows 100 is used up to 95 % with a Max of 95 and
//     a Burst of 5. Its store does not grow with Max: take it for large numbers, such as tokens.
//
// Windows of other algorithms allow about twice their Max in an interval that begins in the middle of one, so
// [NewTransport] refuses them. Throttr servers have none of the two algorithms.
//
// The bounds hold as long as the time between grant and arrival varies by no more than TransportConfig.Margin. The
// store may be slow, but a connection that has to be made takes longer than one that is there, and on a busy machine
// all takes tens of milliseconds more. Choose a Margin that covers that: what it costs is its part of the Scale.
//
// net/http sends some requests again by itself if a connection is lost. Such a request counts once more, without
// waiting. One that is to be sent again because of Retries gives back what it was counted, so that it does not wait for
// itself: what the API has refused so, up to Retries times a request, comes on top of the bounds. It counts if it is
// not sent again after all.
//
// What fails has been counted: it may have arrived.
//
// # Pauses
//
// A response can say that nothing must be sent for a time: see [Pause]. The pause is stored in the backend, for the
// key. No request that is granted later, in any process, is sent before its end. It is longer than it must be by up to
// a tenth, by chance, but at most by 5 s, so that not all clients of the API return at one time. An earlier pause is
// never made shorter. While the store is away, there are no pauses, and Retries sends nothing again that demands one.
type Transport struct {
	cfg     TransportConfig
	limiter *throttr.RateLimit
	stored  []throttr.Limit // as they are counted
}

// NewTransport returns a Transport. It panics if limiter is nil. The error matches [throttr.ErrConfig], and
// [throttr.ErrScale], [throttr.ErrRange] or [throttr.ErrUnsupported] if the RateLimit can't keep a limit.
func NewTransport(limiter *throttr.RateLimit, cfg TransportConfig) (*Transport, error) {
	if limiter == nil {
		panic("httplimit: NewTransport: limiter is nil")
	}
	if cfg.Margin < 0 || cfg.MaxPause < 0 || cfg.Retries < 0 {
		return nil, invalid("Margin, MaxPause and Retries are at least 0")
	}
	if cfg.Margin > maxMargin {
		return nil, invalid("Margin is at most %v, not %v", maxMargin, cfg.Margin)
	}
	cfg.Margin = cmp.Or(cfg.Margin, defaultMargin)
	if cfg.Key == nil {
		cfg.Key = hostOf
	}
	if cfg.Cost == nil {
		cfg.Cost = func(*http.Request, throttr.Limit) uint64 { return 1 }
	}
	if cfg.Pause == nil {
		cfg.Pause = Pause
	}
	cfg.MaxPause = min(cmp.Or(cfg.MaxPause, defaultMaxPause), maxSeconds*time.Second)
	cfg.Base = cmp.Or(cfg.Base, http.DefaultTransport)
	cfg.Limits = slices.Clone(cfg.Limits) // the caller may change the slice
	t := &Transport{cfg: cfg, limiter: limiter}
	for _, l := range t.cfg.Limits {
		stored, err := outgoing(l, cfg.Margin)
		if err != nil {
			return nil, err
		}
		for j, other := range t.stored {
			if other.Name == stored.Name && other.Scale == stored.Scale && other.Algorithm == stored.Algorithm {
				return nil, invalid("limits %q and %q share their count: give them names", t.cfg.Limits[j], l)
			}
		}
		t.stored = append(t.stored, stored)
	}
	for _, l := range append([]throttr.Limit{pauses}, t.stored...) {
		if err := limiter.Check(l); err != nil {
			return nil, invalid("limit %q: %w", l, err)
		}
	}
	return t, nil
}

// hostOf returns the key of a request: URLs of one origin have one key.
func hostOf(r *http.Request) string {
	host := strings.ToLower(r.URL.Host)
	port := map[string]string{"http": ":80", "https": ":443"}[r.URL.Scheme]
	return strings.TrimSuffix(strings.TrimSuffix(host, port), ":")
}

// outgoing returns the limit that keeps within another one although arrivals differ from grants.
func outgoing(l throttr.Limit, margin time.Duration) (throttr.Limit, error) {
	if l.Calendar != 0 {
		return l, invalid("limit %q: a window of the API's calendar may end sooner than one of this process; "+
			"take a sliding log or a token bucket", l)
	}
	if l.Algorithm == 0 {
		l.Algorithm = throttr.SlidingLog
	}
	switch {
	case l.Algorithm != throttr.SlidingLog && l.Algorithm != throttr.TokenBucket:
		return l, invalid("limit %q: it allows up to twice its Max in an interval; "+
			"take a sliding log or a token bucket", l)
	case l.Algorithm == throttr.TokenBucket && l.Burst == 0:
		return l, invalid("limit %q: without a Burst, it allows twice its Max in an interval; "+
			"Burst + Max are what the API allows", l)
	}
	if err := limits.CheckScale(l.Scale); err != nil { // before the margin makes a Scale that is too short long enough
		return l, invalid("limit %q: %w", l, err)
	}
	l.Scale += margin
	return l, nil
}

// RoundTrip waits until the limits allow the request, and sends it. Errors of the wait are those of
// [throttr.RateLimit.WaitAll], and others those of TransportConfig.Base.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := t.cfg.Key(r)
	if key == "" {
		return t.cfg.Base.RoundTrip(r)
	}
	o := t.order(r, key)
	rv, err := t.limiter.WaitAll(r.Context(), o.takes...)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	for try := 0; ; try++ {
		res, err := t.send(r, o)
		if err != nil {
			return nil, err
		}
		again := t.pause(r.Context(), res, o.key) && try < t.cfg.Retries && canRepeat(r, res)
		if !again {
			t.settle(r.Context(), res, o, rv)
			return res, nil
		}
		rv.Cancel(r.Context())
		if rv, err = t.limiter.WaitAll(r.Context(), o.takes...); err != nil {
			t.charge(r.Context(), o, t.used(res, o)) // what is returned counts, after all
			return res, nil
		}
		next := r.Clone(r.Context())
		if r.GetBody != nil {
			if next.Body, err = r.GetBody(); err != nil {
				t.settle(r.Context(), res, o, rv) // in place of what was given back
				return res, nil
			}
		}
		drain(res.Body)
		r = next
	}
}

// send sends a request. If it gets a second connection, it may have arrived on the first one, and counts again.
func (t *Transport) send(r *http.Request, o *order) (*http.Response, error) {
	var connections atomic.Int32
	return t.cfg.Base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			if connections.Add(1) > 1 {
				t.charge(r.Context(), o, nil)
			}
		},
	})))
}

// charge counts what a request has used, or if that is nil, what it has taken, whatever the limits say. An error is for
// the observer of the RateLimit.
func (t *Transport) charge(ctx context.Context, o *order, used []uint64) {
	ctx = context.WithoutCancel(ctx)
	for i := range o.limits {
		n := o.takes[i].N
		if used != nil {
			n = used[i]
		}
		if n > 0 {
			t.limiter.Charge(ctx, o.key, o.takes[i].Limit, n)
		}
	}
}

const (
	// maxDrained bounds how many bytes are read of a response that is not returned, so that its connection can be used
	// again.
	maxDrained = 64 << 10
	// drainedFor is for how long.
	drainedFor = 50 * time.Millisecond
)

// drain reads what is left of a body if that is little and there already, and closes it.
func drain(body io.ReadCloser) {
	if body == nil {
		return
	}
	defer time.AfterFunc(drainedFor, func() { body.Close() }).Stop()
	io.CopyN(io.Discard, body, maxDrained)
	body.Close()
}

// CloseIdleConnections closes those of TransportConfig.Base, see [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.cfg.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// order is what a request takes.
type order struct {
	key    string
	takes  []throttr.Take // the last one is of the limit of pauses
	limits []int          // of the others: indexes in TransportConfig.Limits
}

// order returns what a request takes.
func (t *Transport) order(r *http.Request, key string) *order {
	o := &order{key: "api:k" + key}
	if len(key) > maxPlainKey {
		o.key = "api:h" + admission.Digest(key)
	}
	for i, l := range t.cfg.Limits {
		if n := t.cfg.Cost(r, l); n > 0 {
			o.takes = append(o.takes, t.stored[i].For(o.key, n))
			o.limits = append(o.limits, i)
		}
	}
	o.takes = append(o.takes, pauses.For(o.key, 1))
	return o
}

// maxPlainKey is the length in bytes of the longest key that is stored as it is.
const maxPlainKey = 128

// settle commits what a request has really counted. An error is for the observer of the RateLimit.
func (t *Transport) settle(ctx context.Context, res *http.Response, o *order, rv *throttr.Reservation) {
	if used := t.used(res, o); used != nil {
		rv.Commit(context.WithoutCancel(ctx), used...)
	}
}

// used returns what a request has really counted, for each of its takes, or nil if that is what it has taken.
func (t *Transport) used(res *http.Response, o *order) []uint64 {
	if t.cfg.Actual == nil {
		return nil
	}
	actual := make([]uint64, len(o.takes))
	for i, limit := range o.limits {
		actual[i] = t.cfg.Actual(res, t.cfg.Limits[limit], o.takes[i].N)
	}
	actual[len(o.limits)] = 1
	return actual
}

// canRepeat reports whether a request may be sent again after a response.
func canRepeat(r *http.Request, res *http.Response) bool {
	if res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusServiceUnavailable {
		return false
	}
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != ""
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: httplimit: "+format, append([]any{throttr.ErrConfig}, args...)...)
}
