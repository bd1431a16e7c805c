package httplimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/inflight"
)

// Config configures the middleware that [New] returns. Limits, InFlight or Plan is required. All other fields
// have defaults.
type Config struct {
	// Limits apply together, to the requests for which Plan returns nil. Each has a name, which clients see,
	// and a Max of at most 999,999,999,999,999, the largest number in a header field, or throttr.Unlimited,
	// which has no header fields. In header fields, scales are in whole seconds, rounded up.
	//
	// Limits of the same name, scale and algorithm of several middlewares over one RateLimit share
	// their counts. Give them different names if they should not.
	Limits []throttr.Limit

	// InFlight is how many requests of a key are served at a time, if their Plan has no such limit of its own. A
	// request takes a place before it is counted, and holds it until the handler returns or panics, even if the
	// client has gone, also of a connection that is hijacked. The context of the request ends with the cause
	// inflight.ErrLost if the place is lost. If there is no place, the request is denied and counts in no limit. The
	// name is not one of Limits. Default: no limit.
	InFlight inflight.Limit

	// Places holds the places of InFlight, and is required with it: one for each process and store, see
	// [inflight.New]. Close it after the server has shut down. If it can't decide, the limits apply, and then
	// OnFailure.
	Places *inflight.Limiter

	// NoPlace is what a request is for which there is no place: admission.Deny, the default, which is 429, or
	// admission.Unavailable, which is 503. Both are for OnDenied to respond to.
	NoPlace admission.Verdict

	// Plan returns the limits of a request, or nil for those of Limits. A plan without
	// limits limits nothing and counts nothing. With an error, Limits apply, and if there are none, OnFailure decides.
	//
	// Limits of the same name, scale and algorithm in two plans share their counts, so a client
	// that changes plans keeps its count.
	Plan func(*http.Request) (*Plan, error)

	// Key returns the key under which a request is counted in all limits, of Limits or of a Plan, that have none in
	// KeyOf. If it is "", they count the request by its address, or, with SkipEmptyKey, not at all. The middleware
	// stores, logs and traces a digest of the key, because keys may be secret or personal, such as API keys and names.
	// Default: the address, by Addr. Those of [RemoteAddr], [ByAddr] and [Everyone] are used as they are.
	Key KeyFunc

	// KeyOf has the keys of limits by their names, InFlight's included, in place of Key. All limits are still taken
	// together, in one round trip where a backend can do that. If a KeyFunc returns "", its limit does not apply to the
	// request: an anonymous caller has no tenant. All functions are called for each request. Without Plan, each name is
	// that of a limit. With Plan, KeyOf has the keys of all limits, those of plans included, and Key is not used:
	// requests of a plan that has another limit get a 500, which [Middleware.Check] foresees. Otherwise, a name that is
	// misspelt would make a limit of an account one of an address.
	KeyOf map[string]KeyFunc

	// Addr says how the address of a request is found: the default key, and that of requests whose Key is "".
	// Default: as [RemoteAddr] does.
	Addr AddrConfig

	// PlainKeys stores, logs and traces all keys as they are, if they have up to 128 bytes, but for texts of Key and
	// KeyOf that look like addresses.
	PlainKeys bool

	// SkipEmptyKey leaves the limits that use Key out of requests for which Key returns "". Those of KeyOf still apply.
	SkipEmptyKey bool

	// Skip reports whether to serve a request without counting it, for example a health
	// check or a CORS preflight. See [InNetworks]. Default: no request is skipped.
	Skip func(*http.Request) bool

	// CountRefusals counts denied requests, too: a request is a hit in one limit after the other,
	// up to the one that denies it, and counts in all of these. Default: a request that a limit
	// denies counts in none of them. With rolling algorithms, a limit never counts what it denies.
	CountRefusals bool

	// Cost returns what a request counts in a limit. One in which it costs 0 does not apply to it. A request that costs
	// more than a limit can ever grant is denied, and has no Retry-After. More than 2⁶³-1 is a mistake in the program,
	// such as a ContentLength of -1 that was converted, and the response is 500. What is known only afterwards: see
	// Decision.Commit. Default: 1.
	Cost func(*http.Request, throttr.Limit) uint64

	// GiveBack reports whether a request that was served is given back, by the status of its response: for limits
	// that count failures only, or to leave out 304 and 5xx. That of a handler that panics before it responds is 500,
	// of a connection that was hijacked 101, and of one that returns without a response 200, as net/http writes it. So
	// what turns an error into a response must do so before the wrapped handler returns: echo, with its error handler,
	// does not, see docs/http.md. A request whose client has left stays counted, or clients could choose
	// what they are given back. It is done in the background, for a bounded number at a time; beyond that, the
	// request stays counted, too, as it does if its window has ended. Throttr servers take something back only for a
	// moment. CountRefusals can't be combined with it. The ResponseWriter of the handler is then an [http.Flusher] and
	// an [http.Hijacker], whose Hijack fails if that of the server has none. Default: nothing is given back.
	GiveBack func(r *http.Request, status int) bool

	// OnDenied responds to a request that exceeds a limit, or has no place. The RateLimit fields and
	// Retry-After are set already. To deny nothing, set Shadow of the limits. Default: [Deny].
	OnDenied Answer

	// OnFailure responds to a request that no limit has denied, if the backend has failed to count it in at least one
	// limit, or to decide on its place. It is not called if the client has disconnected. Nor is it if the backend can't
	// keep a limit (throttr.ErrRange, throttr.ErrScale, throttr.ErrUnsupported) or has another value size
	// (throttr.ErrValueSizeMismatch): that is a mistake in the program, and the response is 500. Default:
	// [ServeUnlessFull].
	OnFailure Answer

	// HideFields omits RateLimit and RateLimit-Policy.
	HideFields bool

	// PartitionKey adds its key to each limit in the header fields: an address, with PlainKeys any key, and
	// otherwise the first 12 bytes of its SHA-256 digest, in base64.
	PartitionKey bool

	// Jitter is by how much Retry-After may be later than necessary, by chance: clients that were denied
	// together then do not return together. At most 24 hours. Default: 0.
	Jitter time.Duration

	// Legacy adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	// Default: LegacyNone.
	Legacy Legacy
}

// Legacy selects the X-RateLimit fields, and the meaning of X-RateLimit-Reset, on which
// implementations have never agreed.
type Legacy uint8

const (
	// LegacyNone omits the X-RateLimit fields. It is the default.
	LegacyNone Legacy = iota
	// LegacySeconds makes X-RateLimit-Reset the number of seconds until the window ends.
	LegacySeconds
	// LegacyUnix makes X-RateLimit-Reset the time at which the window ends, in seconds since
	// 1970 in UTC.
	LegacyUnix
)

// New returns middleware that limits the requests to the handlers that it wraps. It is the Wrap
// method of [NewMiddleware].
func New(limiter *throttr.RateLimit, cfg Config) (func(http.Handler) http.Handler, error) {
	m, err := NewMiddleware(limiter, cfg)
	if err != nil {
		return nil, err
	}
	return m.Wrap, nil
}

// NewMiddleware returns middleware that limits the requests to the handlers that it wraps. It panics if
// limiter is nil.
//
// The error matches [throttr.ErrConfig]. It also matches [throttr.ErrScale], [throttr.ErrRange] or
// [throttr.ErrUnsupported] if a backend can't keep one of Config.Limits, or InFlight. Check the plans that
// Config.Plan returns with [Middleware.Check].
func NewMiddleware(limiter *throttr.RateLimit, cfg Config) (*Middleware, error) {
	if limiter == nil {
		panic("httplimit: NewMiddleware: limiter is nil")
	}
	if cfg.Legacy > LegacyUnix {
		return nil, invalid("there is no Legacy %d", cfg.Legacy)
	}
	if cfg.GiveBack != nil && cfg.CountRefusals {
		return nil, invalid("GiveBack can't be combined with CountRefusals")
	}
	byAddr, err := ByAddr(cfg.Addr)
	if err != nil {
		return nil, err
	}
	if cfg.OnDenied == nil {
		cfg.OnDenied = Deny
	}
	if cfg.OnFailure == nil {
		cfg.OnFailure = ServeUnlessFull
	}
	m := &Middleware{config: cfg}
	m.keys = admission.KeyFuncs[KeyFunc]{
		Key: cfg.Key, KeyOf: cfg.KeyOf, Addr: byAddr, Everyone: Everyone, Remote: RemoteAddr,
	}
	if err := m.keys.Check(cfg.has); err != nil {
		return nil, err
	}
	m.gate, err = admission.New(limiter, admission.Config{
		Limits:        cfg.Limits,
		OnlyPlans:     cfg.Plan != nil,
		InFlight:      cfg.InFlight,
		Places:        cfg.Places,
		NoPlace:       cfg.NoPlace,
		CountRefusals: cfg.CountRefusals,
		PlainKeys:     cfg.PlainKeys,
		Keyed:         m.keys.Keyed(),
		SkipEmptyKey:  cfg.SkipEmptyKey,
		Jitter:        cfg.Jitter,
		PartitionKey:  cfg.PartitionKey,
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// has reports whether there may be a limit of a name.
func (c *Config) has(name string) bool {
	return c.Plan != nil || name == c.InFlight.Name ||
		slices.ContainsFunc(c.Limits, func(l throttr.Limit) bool { return l.Name == name })
}
