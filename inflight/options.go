package inflight

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/outage"
)

// Policy is what a [Limiter] does while the store is away. It does not apply to mistakes in the program, or if the
// caller's ctx has ended.
type Policy uint8

const (
	// Refuse returns the error of the store. Places that are held are lost when their lease is over. The default.
	Refuse Policy = iota
	// Share lets each process have its share of the places, see [WithProcesses]. What it holds already counts. Places
	// stay held until they are released. When the store is back, it is told of all, and grants none until fewer than
	// Max are held.
	Share
	// Admit lets everybody in. Places stay held, and are told, as with Share.
	Admit
)

// String returns what the policy does.
func (p Policy) String() string {
	return api.Name(p, "unknown policy", "leave it to the caller", "a share of the places", "admit")
}

// The defaults of WithMaxKeys and WithMaxWaiting.
const (
	DefaultMaxKeys    = 1 << 16
	DefaultMaxWaiting = 1 << 16
)

// Option is an option of [New].
type Option func(*options)

type options struct {
	policy              Policy
	processes           uint64
	strict              bool
	maxKeys, maxWaiting int
	outages             outage.Settings
	observer            Observer
}

// WithPolicy sets what happens while the store is away. Default: [Refuse]. It panics if p is unknown.
func WithPolicy(p Policy) Option {
	if p > Admit {
		panic("inflight: WithPolicy: unknown policy")
	}
	return func(o *options) { o.policy = p }
}

// WithStrict lets nothing be granted for a lease after the store has lost its data, or has just been made, so that all
// processes can say what they hold: never more than Max places are held then. Calls that do not wait fail with a
// [*NotYetError] meanwhile, unless the policy decides. Places that the store has granted are lost with their lease,
// whatever the policy.
//
// Without it, places are granted at once. More than Max are held after a loss of data, until as many as were forgotten
// have been released; see the table in docs/guarantees.md.
func WithStrict() Option { return func(o *options) { o.strict = true } }

// WithProcesses says how many processes share the limits, for [Share]: each has as large a part of Max, rounded
// down, but at least 1. Default, and with 0: 1. It panics if n is negative.
func WithProcesses(n int) Option {
	return func(o *options) { o.processes = uint64(api.NotNegative("inflight: WithProcesses", n)) }
}

// WithMaxKeys bounds the keys and names of which the process holds or wants places at a time, or has still to tell the
// store that it does not, see [Stats]. Further ones fail with throttr.ErrFull. The bound of a backend of package memory
// is its own, which all of its limiters share. Default, and with 0: [DefaultMaxKeys]. It panics if n is negative.
func WithMaxKeys(n int) Option {
	return func(o *options) { o.maxKeys = api.NotNegative("inflight: WithMaxKeys", n) }
}

// WithMaxWaiting bounds the calls that wait for a place at a time, of all keys. Further ones fail with
// throttr.ErrOverloaded. Default, and with 0: [DefaultMaxWaiting]. It panics if n is negative.
func WithMaxWaiting(n int) Option {
	return func(o *options) { o.maxWaiting = api.NotNegative("inflight: WithMaxWaiting", n) }
}

// WithTimeout bounds how long an exchange with the store may take: a quarter of the lease at most. One that takes
// longer has failed. If the process stood still when half of that was over, nothing is known of the store, and the
// policy decides nothing. Default, and with 0: 250 ms. It panics if d is negative.
func WithTimeout(d time.Duration) Option {
	return func(o *options) { o.outages.Timeout = api.NotNegative("inflight: WithTimeout", d) }
}

// WithBreaker sets when the circuit breaker opens, and how soon it notices that the store is back, as
// throttr.WithBreaker. Until it opens, a call that waits goes on waiting, but not if the store says that it can't
// serve the key, or exchanges of the key fail for a lease. Defaults, and with 0: 3 failures, 320 ms. It panics if a
// number is negative.
func WithBreaker(failures int, pause time.Duration) Option {
	return func(o *options) {
		o.outages.Failures = api.NotNegative("inflight: WithBreaker", failures)
		o.outages.Pause = api.NotNegative("inflight: WithBreaker", pause)
	}
}

// WithLogger sets where a Limiter logs, at level WARN, that its store is away, and that it is back: two lines for an
// outage. A Backend that panics when it is asked in the background has a line at level ERROR. Default:
// [slog.Default]. A nil logger turns the lines off.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) { o.outages.Logger = cmp.Or(l, outage.Silent) }
}

// WithObserver sets what sees the events of a Limiter. It is called by the goroutines that hold and release, and must
// be fast. Default: nothing.
func WithObserver(f Observer) Option { return func(o *options) { o.observer = f } }

// Observer sees events. It must be safe for concurrent use, and must not call the Limiter.
type Observer func(ctx context.Context, e Event)

// Kind is what has happened.
type Kind uint8

const (
	Acquired    Kind = iota + 1 // places are held
	Denied                      // there was no place, and the call did not wait
	Failed                      // there was no decision; Err says why
	Released                    // places were given back, by the holder or by Close
	Lost                        // places were lost
	Unavailable                 // the store is away; Err says why
	Available                   // it is back
	DataLost                    // it has lost its data, or with WithStrict may have
)

// String returns the kind as one word.
func (k Kind) String() string {
	return api.Name(k, "unknown", "", "acquired", "denied", "failed", "released", "lost", "unavailable", "available",
		"data lost")
}

// Event is what an [Observer] sees.
type Event struct {
	Kind     Kind
	Key      string
	Limit    Limit
	N        uint64
	Waited   time.Duration // until the decision
	Held     time.Duration // of Released and Lost
	InUse    uint64        // of Acquired and Denied: of all processes, right after the decision; 0: not known
	Degraded bool          // the store has not decided
	Err      error
}

// observeOutage tells the observer that the store is away, because of a cause, or that it is back.
func (l *Limiter) observeOutage(cause error, after time.Duration) {
	kind := Available
	if cause != nil {
		kind = Unavailable
	}
	l.observe(Event{Kind: kind, Held: after, Err: cause})
}

// observe tells the observer of an event of the store.
func (l *Limiter) observe(e Event) {
	if l.observer != nil {
		l.observer(context.Background(), e)
	}
}
