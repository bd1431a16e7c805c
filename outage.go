package throttr

import (
	"context"
	"log/slog"
	"time"

	"github.com/throttr-go/throttr/internal/outage"
)

// WithLogger sets where a RateLimit logs, at level WARN, that its store is away, and that it is back: two
// lines for an outage, however many decisions are made meanwhile. If a store fails again and again, but not
// so often in a row that its circuit breaker opens, there is a line a minute. The lines have no keys, unless
// the errors of a backend of your own have. Default: [slog.Default]. A nil
// logger turns the lines off.
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
