package throttr

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// WithLogger sets where a RateLimit logs, at level WARN, that its store is away, and that it is back: two
// lines for an outage, however many decisions are made meanwhile. If a store fails again and again, but not
// so often in a row that its circuit breaker opens, there is a line a minute. The lines have no keys, unless
// the errors of a backend of your own have. Default: [slog.Default]. A nil
// logger turns the lines off.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) { o.logger = func() *slog.Logger { return l } }
}

// sporadicPeriod is how long decisions without the store are counted before a line reports them.
const sporadicPeriod = time.Minute

// watch tells the program that the store of a RateLimit is away, and that it is back.
type watch struct {
	options *options
	backend Backend

	mu       sync.Mutex // guards what follows
	open     int        // circuits
	since    time.Time  // of the outage, or of the first decision that no line has reported
	degraded int        // decisions since then
	denied   int        // of these
}

// opened is called when a circuit opens.
func (w *watch) opened(cause error) {
	w.mu.Lock()
	w.open++
	first := w.open == 1
	if first && (w.degraded == 0 || time.Since(w.since) > time.Second) {
		w.since, w.degraded, w.denied = time.Now(), 0, 0
	}
	w.mu.Unlock()
	if !first {
		return
	}
	if l := w.options.logger(); l != nil {
		l.Warn("throttr: the store is away", "store", w.name(), "error", withoutKey(cause), "instead", w.options.insteadText())
	}
	if w.options.observer != nil {
		w.options.observer(context.Background(), Event{Kind: EventUnavailable, Err: cause})
	}
}

// closed is called when a circuit closes.
func (w *watch) closed() {
	w.mu.Lock()
	w.open--
	last, after, degraded, denied := w.open == 0, time.Since(w.since), w.degraded, w.denied
	if last {
		w.degraded, w.denied = 0, 0
	}
	w.mu.Unlock()
	if !last {
		return
	}
	if l := w.options.logger(); l != nil {
		l.Warn("throttr: the store is back", "store", w.name(), "after", after.Round(time.Millisecond), "degraded", degraded, "denied", denied)
	}
	if w.options.observer != nil {
		w.options.observer(context.Background(), Event{Kind: EventAvailable, Duration: after})
	}
}

// decided is called when a decision was made without the store, because of a cause.
func (w *watch) decided(allowed bool, cause error) {
	w.mu.Lock()
	if w.degraded == 0 {
		w.since = time.Now()
	}
	w.degraded++
	if !allowed {
		w.denied++
	}
	degraded, denied, after := w.degraded, w.denied, time.Duration(0)
	if w.open == 0 {
		if after = time.Since(w.since); after >= sporadicPeriod {
			w.degraded, w.denied = 0, 0
		}
	}
	w.mu.Unlock()
	if l := w.options.logger(); after >= sporadicPeriod && l != nil {
		l.Warn("throttr: decisions without the store", "store", w.name(), "error", withoutKey(cause), "within", after.Round(time.Second),
			"degraded", degraded, "denied", denied, "instead", w.options.insteadText())
	}
}

// name returns the names of the backend's stores, as far as it has any.
func (w *watch) name() string {
	b, ok := w.backend.(interface{ Stats() window.Stats })
	if !ok {
		return ""
	}
	var names []string
	for _, s := range b.Stats().Stores {
		names = append(names, s.Name)
	}
	return strings.Join(names, ",")
}

// insteadText says what decides while the store is away.
func (o *options) insteadText() string {
	if o.fallback != nil {
		return "fallback, or " + o.policy.String()
	}
	return o.policy.String()
}
