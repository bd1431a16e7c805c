package inflight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/callerr"
	"github.com/throttr-go/throttr/window"
)

// shareWait is how long a call waits for a place of the share of the process before it asks the store again.
const shareWait = time.Second

// ask grants places of the store, or by the policy while it is away.
func (l *Limiter) ask(h *Hold, key string, limit *Limit, n uint64, wait bool) (granted bool, err error) {
	for {
		granted, err = l.exchange(h, key, limit, n, wait)
		if err == nil || l.policy == Refuse || h.ctx.Err() != nil || !isOutage(err) {
			return granted, err
		}
		h.want = nil
		most := uint64(window.Unlimited)
		if l.policy == Share {
			most = max(limit.Max/l.processes, 1)
			most -= min(most, l.store.held(key, limit.Name))
		}
		ctx, cancel := h.ctx, func() {}
		if wait {
			ctx, cancel = context.WithTimeout(ctx, shareWait)
		}
		granted, err = l.take(ctx, l.instead, h, key, limit, n, most, wait)
		cancel()
		if !wait || granted || h.ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			l.store.watch.decided(granted)
			return granted, err
		}
	}
}

// exchange grants places of the store.
func (l *Limiter) exchange(h *Hold, key string, limit *Limit, n uint64, wait bool) (granted bool, err error) {
	w, err := l.store.want(h, key, limit, n, wait)
	if err != nil {
		return false, err
	}
	select {
	case d := <-w.ready:
		return d.state == held, d.err
	case <-h.ctx.Done():
		l.store.release(w)
		return false, h.ctx.Err()
	}
}

// isAway reports whether an error says that the store is away.
func isAway(err error) bool {
	var network net.Error // context.DeadlineExceeded, too
	return errors.Is(err, window.ErrUnavailable) || errors.As(err, &network)
}

// isOutage reports whether an error is a failure of the store, to which a policy applies.
func isOutage(err error) bool {
	for _, mistake := range []error{window.ErrRange, window.ErrScale, window.ErrUnsupported, window.ErrConfig, window.ErrClosed} {
		if errors.Is(err, mistake) {
			return false
		}
	}
	return true
}

// timeoutError says that an exchange took longer than WithTimeout allows.
type timeoutError struct {
	after time.Duration
	err   error
}

// Error says why there is no answer.
func (e *timeoutError) Error() string {
	return fmt.Sprintf("no answer within %v: %s", e.after, strings.TrimPrefix(e.err.Error(), "throttr: "))
}

// Unwrap returns ErrUnavailable and the error of the exchange.
func (e *timeoutError) Unwrap() []error { return []error{window.ErrUnavailable, e.err} }

// notAsked returns the error of an exchange that was not made, because others had failed with the given cause.
func notAsked(cause error) error {
	if errors.Is(cause, window.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", window.ErrUnavailable, cause)
}

// watch tells the program that the store is away, and that it is back.
type watch struct {
	limiter *Limiter

	mu       sync.Mutex // guards what follows
	open     int        // circuits
	since    time.Time  // of the outage
	degraded int        // decisions since then
	denied   int        // of these
}

// opened is called when a circuit opens.
func (w *watch) opened(cause error) {
	w.mu.Lock()
	w.open++
	first := w.open == 1
	if first {
		w.since, w.degraded, w.denied = time.Now(), 0, 0
	}
	w.mu.Unlock()
	if !first {
		return
	}
	l := w.limiter
	if log := l.logger(); log != nil {
		log.Warn("throttr: the store is away", "store", w.name(), "error", withoutKey(cause), "instead", l.policy.String())
	}
	if l.observer != nil {
		l.observer(context.Background(), Event{Kind: Unavailable, Err: cause})
	}
}

// closed is called when a circuit closes.
func (w *watch) closed() {
	w.mu.Lock()
	w.open--
	last, after, degraded, denied := w.open == 0, time.Since(w.since), w.degraded, w.denied
	w.mu.Unlock()
	if !last {
		return
	}
	l := w.limiter
	if log := l.logger(); log != nil {
		log.Warn("throttr: the store is back", "store", w.name(), "after", after.Round(time.Millisecond), "degraded", degraded, "denied", denied)
	}
	if l.observer != nil {
		l.observer(context.Background(), Event{Kind: Available, Held: after})
	}
}

// decided is called when a decision was made without the store.
func (w *watch) decided(granted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.degraded++; !granted {
		w.denied++
	}
}

// name returns the names of the backend's stores, as far as it has any.
func (w *watch) name() string {
	b, ok := w.limiter.backend.(interface{ Stats() window.Stats })
	if !ok {
		return ""
	}
	var names []string
	for _, s := range b.Stats().Stores {
		names = append(names, s.Name)
	}
	return strings.Join(names, ",")
}

// withoutKey returns what an error says of the store, without the call and the key, which may be personal.
func withoutKey(err error) string {
	var late *timeoutError
	var call *callerr.Error
	switch {
	case errors.As(err, &late):
		return fmt.Sprintf("no answer within %v", late.after)
	case errors.As(err, &call):
		return call.Err.Error()
	}
	return err.Error()
}
