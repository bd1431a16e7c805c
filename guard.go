package throttr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/memory"
)

// The defaults of WithTimeout and WithBreaker.
const (
	defaultTimeout  = 250 * time.Millisecond
	defaultFailures = 3
	defaultPause    = 320 * time.Millisecond
)

// WithTimeout bounds how long a decision waits for the backend, and then for the fallback. A call that
// takes longer has failed: the error matches [ErrUnavailable]. It also bounds Peek, and the settling of a
// reservation. Backends of package memory wait for nothing, and are not bound. Default, and with 0: 250 ms. It
// panics if d is negative.
func WithTimeout(d time.Duration) Option {
	api.NotNegative("throttr: WithTimeout", d)
	return func(o *options) { o.timeout = d }
}

// WithBreaker sets when the circuit breaker of a backend opens, and how soon it notices that the store is back. After
// so many calls in a row that found the store away (errors that match [ErrUnavailable], errors of the network, and
// calls that took longer than [WithTimeout]), no call asks it any more: the fallback or the policy decides at once. A
// Peek of the key whose failure opened it then asks the store in the background, after pauses that grow up to the
// given one, of at least 1 ms. When it is answered, one call goes to the store again, and if that does not fail
// either, all do. If nobody has called for 10 s, the pauses grow to 30 s, the next call asks the store, and an answer
// to a Peek is enough to end the outage.
//
// Every Throttr server has a breaker, and so has each node of a Redis cluster. Mistakes in the program,
// [ErrOverloaded], and [ErrFull] for some keys only open none. Defaults, and with 0: 3 failures, 320 ms. It panics if
// a number is negative.
func WithBreaker(failures int, pause time.Duration) Option {
	api.NotNegative("throttr: WithBreaker", failures)
	api.NotNegative("throttr: WithBreaker", pause)
	return func(o *options) { o.failures, o.pause = failures, pause }
}

// WithLogger sets where a RateLimit logs, at level WARN, that its store is away, and that it is back: two lines for
// an outage, however many decisions are made meanwhile. If a store fails again and again, but not so often in a row
// that its circuit breaker opens, there is a line a minute. If a backend of your own panics when it is asked in the
// background, see [WithBreaker], there is a line at level ERROR with the stack, and the program goes on. The lines
// have no keys, unless the errors of a backend of your own have. Default: [slog.Default]. A nil logger turns the
// lines off.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) { o.logger = func() *slog.Logger { return l } }
}

// newWatch returns what tells the program that the store of a RateLimit is away, and that it is back.
func newWatch(b Backend, o *options) *outage.Watch {
	return &outage.Watch{Backend: b, Logger: o.logger, Instead: o.insteadText(), Text: withoutKey, Observed: o.observeOutage}
}

// unwatched is for outages of fallbacks, which nobody is told.
var unwatched = &outage.Watch{Logger: func() *slog.Logger { return nil }, Observed: func(error, time.Duration) {}}

// observeOutage tells the observer that the store is away, because of a cause, or that it is back.
func (o *options) observeOutage(cause error, after time.Duration) {
	switch {
	case o.observer == nil:
	case cause != nil:
		o.observer(context.Background(), Event{Kind: EventUnavailable, Err: cause})
	default:
		o.observer(context.Background(), Event{Kind: EventAvailable, Duration: after})
	}
}

// insteadText says what decides while the store is away.
func (o *options) insteadText() string {
	if o.fallback != nil {
		return "fallback, or " + o.policy.String()
	}
	return o.policy.String()
}

// guard returns a backend with what protects callers while its store is away, of which w is told. The memory of the
// process is never away, and waits for nothing. The guard of package lease is passed by what needs no store. A
// wrapper of either is a backend like any other.
func (o *options) guard(b Backend, w *outage.Watch) Backend {
	b = opened(b)
	if m, ok := b.(*memory.Backend); ok {
		return m
	}
	return outage.New(b, outage.Options{
		Timeout: o.timeout, Failures: o.failures, Pause: o.pause, Watch: w, NotAsked: notAsked,
	})
}

// opened returns the backend that Open has opened, if b is of it, and b otherwise.
func opened(b Backend) Backend {
	if o, ok := b.(*OpenBackend); ok {
		return o.BackendCloser
	}
	return b
}

// withoutKey returns what an error says of the store, without the call and the key, which may be personal.
func withoutKey(err error) string {
	var late *outage.TimeoutError
	var request *RequestError
	if !errors.As(err, &late) && errors.As(err, &request) {
		return "server " + request.Server + failureText(request.Server, request.Err)
	}
	return outage.WithoutKey(err)
}

// notAsked returns the error of a call that was not made, because others had failed with the given cause.
func notAsked(call, key string, cause error) error {
	var request *RequestError
	if errors.As(cause, &request) {
		e := *request
		e.Call = call
		e.Key = key
		e.Sent = false
		if !errors.Is(&e, ErrUnavailable) { // a stalled server, for example
			e.Err = fmt.Errorf("%w: %w", ErrUnavailable, e.Err)
		}
		return &e
	}
	var other *api.CallError
	if errors.As(cause, &other) {
		cause = other.Err
	}
	if !errors.Is(cause, ErrUnavailable) {
		cause = fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	return callError(call, key, cause)
}
