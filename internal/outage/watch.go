package outage

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// sporadicPeriod is how long decisions without the store are counted before a line reports them.
const sporadicPeriod = time.Minute

// Watch tells the program that a store is away, and that it is back.
type Watch struct {
	Backend  window.Backend
	Logger   func() *slog.Logger
	Instead  string                                 // what decides while the store is away
	Text     func(error) string                     // what a line has of an error
	Observed func(cause error, after time.Duration) // after an outage, cause is nil

	mu    sync.Mutex // guards what follows
	open  int        // circuits
	since time.Time  // of the outage, or of the first decision that no line has reported
	made  decisions  // since then, without the store
}

// decisions are numbers of decisions.
type decisions struct{ all, denied int }

// Opened is called when a circuit opens.
func (w *Watch) Opened(cause error) {
	w.mu.Lock()
	w.open++
	first := w.open == 1
	if first && (w.made.all == 0 || time.Since(w.since) > time.Second) {
		w.since = time.Now()
		w.made = decisions{}
	}
	w.mu.Unlock()
	if !first {
		return
	}
	if l := w.Logger(); l != nil {
		l.Warn("throttr: the store is away", "store", w.name(), "error", w.Text(cause), "instead", w.Instead)
	}
	w.Observed(cause, 0)
}

// Closed is called when a circuit closes.
func (w *Watch) Closed() {
	w.mu.Lock()
	w.open--
	last := w.open == 0
	made := w.made
	after := time.Since(w.since)
	if last {
		w.made = decisions{}
	}
	w.mu.Unlock()
	if !last {
		return
	}
	if l := w.Logger(); l != nil {
		l.Warn("throttr: the store is back", "store", w.name(), "after", after.Round(time.Millisecond), "degraded",
			made.all, "denied", made.denied)
	}
	w.Observed(nil, after)
}

// Decided is called when a decision was made without the store. If there is a cause, decisions are also reported
// while no circuit is open.
func (w *Watch) Decided(allowed bool, cause error) {
	made, within := w.count(allowed, cause != nil)
	if l := w.Logger(); within > 0 && l != nil {
		l.Warn("throttr: decisions without the store", "store", w.name(), "error", w.Text(cause), "within",
			within.Round(time.Second),
			"degraded", made.all, "denied", made.denied, "instead", w.Instead)
	}
}

// Panicked is called when the backend has panicked in the background.
func (w *Watch) Panicked(cause any, stack []byte) {
	if l := w.Logger(); l != nil {
		l.Error("throttr: the backend has panicked", "store", w.name(), "panic", cause, "stack", string(stack))
	}
}

// count counts a decision, and returns what is to be reported now while no circuit is open: decisions, and within
// which time they were made, or 0.
func (w *Watch) count(allowed, reported bool) (made decisions, within time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.made.all == 0 && w.open == 0 {
		w.since = time.Now()
	}
	w.made.all++
	if !allowed {
		w.made.denied++
	}
	within = time.Since(w.since)
	if w.open > 0 || !reported || within < sporadicPeriod {
		return made, 0
	}
	made = w.made
	w.made = decisions{}
	return made, within
}

// name returns the names of the backend's stores, as far as it has any.
func (w *Watch) name() string {
	b, ok := w.Backend.(interface{ Stats() window.Stats })
	if !ok {
		return ""
	}
	var names []string
	for _, s := range b.Stats().Stores {
		names = append(names, s.Name)
	}
	return strings.Join(names, ",")
}
