package outage

import (
	"cmp"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// linePeriod is how long decisions without the store are counted after a line, before another one reports them.
const linePeriod = time.Minute

// Watch tells the program that a store is away, and that it is back. Each decision without the store is in the numbers
// of one line, which is written at once, at the end of the outage, or a minute after the line before.
//
// An outage has a line when the first circuit opens, and one when the last circuit closes, with the numbers of what was
// decided since the last line with numbers. While none is open, the first decision without the store has a line, and
// those of the next minute have one at its end. While one is open, decisions have no lines.
type Watch struct {
	Backend          window.Backend
	Logger           *slog.Logger                           // nil: slog.Default, as it is when there is something to log
	DecidesMeanwhile string                                 // what decides while the store is away
	Text             func(error) string                     // what a line has of an error
	Observed         func(cause error, after time.Duration) // after an outage, cause is nil

	mu      sync.Mutex    // guards what follows
	open    int           // circuits
	cause   error         // of the outage
	since   time.Time     // when it began
	after   time.Duration // how long the last one was
	told    bool          // the program knows of the outage
	telling bool          // a call tells the program
	made    decisions     // that no line has reported
	timed   bool          // a timer will report them
}

// decisions are numbers of calls that the store has not decided.
type decisions struct {
	all    int // that something else has decided
	denied int // of these
	failed int // that nothing has decided
	since  time.Time
	cause  error // of the last one that has any; nil, in package inflight alone: no line but that of an outage
}

// fields returns the numbers as those of a line.
func (d *decisions) fields() slog.Attr {
	return slog.Group("", "degraded", d.all, "denied", d.denied, "failed", d.failed)
}

// Opened is called when a circuit opens.
func (w *Watch) Opened(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	if w.open == 1 && !w.told {
		w.cause = cause
		w.since = time.Now()
	}
	w.tell()
}

// Closed is called when a circuit closes.
func (w *Watch) Closed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	if w.open == 0 {
		w.after = time.Since(w.since)
	}
	w.tell()
}

// tell tells the program whether the store is away, in turn: what changes meanwhile is told by the call that tells
// already, so that the program knows in the end what is. A handler may make calls that change it. The caller holds mu,
// which is free while the program is told.
func (w *Watch) tell() {
	if w.telling {
		return
	}
	w.telling = true
	defer func() { w.telling = false }()
	for w.told != (w.open > 0) {
		w.told = !w.told
		if w.told {
			w.away(w.cause)
		} else {
			w.back(w.after, w.take())
		}
	}
}

func (w *Watch) log() *slog.Logger { return cmp.Or(w.Logger, slog.Default()) }

// away tells that the store is away. The caller holds mu.
func (w *Watch) away(cause error) {
	w.mu.Unlock()
	defer w.mu.Lock()
	w.log().Warn("throttr: the store is away", "store", Stores(w.Backend), "error", w.Text(cause),
		"instead", w.DecidesMeanwhile)
	w.Observed(cause, 0)
}

// back tells that the store is back. The caller holds mu.
func (w *Watch) back(after time.Duration, made decisions) {
	w.mu.Unlock()
	defer w.mu.Lock()
	w.log().Warn("throttr: the store is back", "store", Stores(w.Backend),
		"after", after.Round(time.Millisecond), made.fields())
	w.Observed(nil, after)
}

// Decided is called when a decision was made without the store. With a cause, it is also reported while no circuit is
// open. Only package inflight has decisions without one: they only happen while a circuit is open.
func (w *Watch) Decided(allowed bool, cause error) {
	if allowed {
		w.add(decisions{all: 1}, cause)
	} else {
		w.add(decisions{all: 1, denied: 1}, cause)
	}
}

// Failed is called when nothing has decided a call that the store did not. It is reported as decisions are.
func (w *Watch) Failed(cause error) { w.add(decisions{failed: 1}, cause) }

func (w *Watch) add(one decisions, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &w.made
	if *m == (decisions{}) {
		m.since = time.Now()
	}
	m.all += one.all
	m.denied += one.denied
	m.failed += one.failed
	m.cause = cmp.Or(cause, m.cause)
	w.report()
}

// timeUp is called by the timer.
func (w *Watch) timeUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timed = false
	w.report()
}

// report logs the decisions that need a line now, and not at the end of the outage or by the timer. The caller holds
// mu, which is free while they are logged.
func (w *Watch) report() {
	if w.open > 0 || w.timed || w.made.cause == nil {
		return
	}
	made := w.take()
	w.mu.Unlock()
	defer w.mu.Lock()
	w.log().Warn("throttr: decisions without the store", "store", Stores(w.Backend),
		"error", w.Text(made.cause), "within", time.Since(made.since).Round(time.Second), made.fields(),
		"instead", w.DecidesMeanwhile)
}

// take returns the decisions that a line is to report. Further ones are counted for a while. The caller holds mu.
func (w *Watch) take() decisions {
	made := w.made
	w.made = decisions{}
	if !w.timed {
		w.timed = true
		time.AfterFunc(linePeriod, w.timeUp)
	}
	return made
}

// LogPanic logs that a backend has panicked in the background, where the program could not recover from it. It is
// called by the deferred function that has recovered.
func LogPanic(l *slog.Logger, b window.Backend, cause any) {
	l.Error("throttr: the backend has panicked", "store", Stores(b), "panic", cause, "stack", string(debug.Stack()))
}

// Stores returns the names of a backend's stores, as far as it has any.
func Stores(b window.Backend) string {
	counted, ok := b.(interface{ Stats() window.Stats })
	if !ok {
		return ""
	}
	var names []string
	for _, s := range counted.Stats().Stores {
		names = append(names, s.Name)
	}
	return strings.Join(names, ",")
}
