package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/throttr-go/throttr"
)

// ErrConfig says that a Config, an AddrConfig or a Limit can't be used.
var ErrConfig = errors.New("httplimit: invalid configuration")

// Config is what [New] makes middleware of. Only Limits has no default.
type Config struct {
	// Limits hold at the same time. They are needed even if Plan is given: where it
	// returns nil, these hold.
	Limits []Limit

	// Plan returns the limits of a request, nil for those of Limits. A plan without
	// limits does not limit, and counts nothing.
	//
	// A limit of the same name and window in two plans is the same count: who changes
	// plans keeps what was counted.
	Plan func(*http.Request) *Plan

	// Key returns whom a request counts for. Default: [RemoteAddr].
	Key KeyFunc

	// SkipEmptyKey has requests served uncounted for which Key returns "". Default: they
	// count together, as one client's.
	SkipEmptyKey bool

	// Skip returns whether a request is to be served uncounted, such as a health check,
	// or a CORS preflight. Default: none is.
	Skip func(*http.Request) bool

	// Cost returns what a request counts for. One that costs 0 is not counted, but
	// denied if others have exceeded a limit. One that costs more than a limit is
	// denied, and fills the window. Default: 1.
	Cost func(*http.Request) uint64

	// Name keeps the counts apart from those of other middleware over the same
	// RateLimit. Two with the same name share the limits that have the same name and
	// window. Default: "".
	Name string

	// OnDenied answers a request that is over a limit. The RateLimit fields and
	// Retry-After are set already. [Serve] makes for a trial run, in which nothing is
	// denied. Default: [Deny].
	OnDenied Answer

	// OnFailure answers a request that no limit has denied, but that the backend has
	// failed to count in one at least. It is not called where the client has left, or
	// where the backend can't keep a limit at all (throttr.ErrRange), which is a mistake
	// in the program, and is answered with 500. Default: [Serve].
	OnFailure Answer

	// HideFields leaves out RateLimit and RateLimit-Policy.
	HideFields bool

	// Legacy adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	// Default: no.
	Legacy Legacy

	// Clock is the time that the backend goes by. It is only used to tell how long a
	// window still lasts. Default: time.Now.
	Clock func() time.Time
}

// Legacy is whether there are X-RateLimit fields, and what X-RateLimit-Reset is, as there
// has never been agreement on it.
type Legacy uint8

const (
	// LegacyNone is no such fields. The default.
	LegacyNone Legacy = iota
	// LegacySeconds has X-RateLimit-Reset be the number of seconds until the window ends.
	LegacySeconds
	// LegacyUnix has X-RateLimit-Reset be when the window ends, in seconds since 1970 in
	// UTC.
	LegacyUnix
)

// New returns middleware that limits the requests to the handlers that it wraps. They share
// the limits. The error matches [ErrConfig].
func New(limiter *throttr.RateLimit, cfg Config) (func(http.Handler) http.Handler, error) {
	if limiter == nil {
		return nil, fmt.Errorf("%w: the RateLimit is nil", ErrConfig)
	}
	if len(cfg.Limits) == 0 {
		return nil, fmt.Errorf("%w: Limits is empty", ErrConfig)
	}
	if cfg.Legacy > LegacyUnix {
		return nil, fmt.Errorf("%w: there is no Legacy %d", ErrConfig, cfg.Legacy)
	}
	plan, err := NewPlan(cfg.Limits...)
	if err != nil {
		return nil, err
	}
	cfg.Limits = nil // the caller's
	cfg.setDefaults()
	m := &middleware{
		Config: cfg, limiter: limiter, plan: plan,
		prefix: "http:" + strconv.Itoa(len(cfg.Name)) + ":" + cfg.Name,
	}
	return func(next http.Handler) http.Handler { return &handler{middleware: m, next: next} }, nil
}

func (c *Config) setDefaults() {
	if c.Plan == nil {
		c.Plan = func(*http.Request) *Plan { return nil }
	}
	if c.Key == nil {
		c.Key = RemoteAddr
	}
	if c.Skip == nil {
		c.Skip = func(*http.Request) bool { return false }
	}
	if c.Cost == nil {
		c.Cost = func(*http.Request) uint64 { return 1 }
	}
	if c.OnDenied == nil {
		c.OnDenied = Deny
	}
	if c.OnFailure == nil {
		c.OnFailure = Serve
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
}
