package inflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

// NotYetError says that no places are granted yet, as the store is new, or has lost its data: see [WithStrict]. It matches
// throttr.ErrUnavailable.
type NotYetError struct {
	RetryAfter time.Duration // what is left of the wait
}

// Error says for how long nothing is granted.
func (e *NotYetError) Error() string {
	return fmt.Sprintf("inflight: the store is new, or has lost its data: no places are granted for %v", e.RetryAfter.Round(time.Millisecond))
}

// Unwrap returns [window.ErrUnavailable].
func (e *NotYetError) Unwrap() error { return window.ErrUnavailable }

// ask grants places of the store, or by the policy while it is away.
func (l *Limiter) ask(h *Hold, key string, limit *Limit, n uint64, wait bool) (granted bool, err error) {
	w, err := l.pumps.want(h, key, limit, n, wait)
	if err != nil {
		return false, err
	}
	select {
	case d := <-w.ready:
		l.pumps.readies.Put(w.ready)
		if d.alone {
			l.pumps.watch.Decided(d.state == held, nil)
		}
		if h.about != nil {
			h.about.used = d.used
		}
		return d.state == held, d.err
	case <-h.ctx.Done():
		l.pumps.release(w)
		return false, h.ctx.Err()
	}
}

// isOutage reports whether an error is a failure of the store, to which a policy applies.
func isOutage(err error) bool { return !outage.IsMistake(err) && !errors.Is(err, window.ErrClosed) }

// notAsked returns the error of an exchange that was not made, because others had failed with the given cause.
func notAsked(cause error) error {
	if errors.Is(cause, window.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", window.ErrUnavailable, cause)
}

// observeOutage tells the observer that the store is away, because of a cause, or that it is back.
func (l *Limiter) observeOutage(cause error, after time.Duration) {
	switch {
	case l.observer == nil:
	case cause != nil:
		l.observer(context.Background(), Event{Kind: Unavailable, Err: cause})
	default:
		l.observer(context.Background(), Event{Kind: Available, Held: after})
	}
}

// loss is a loss of data of the store.
type loss struct{ grace time.Duration }

// lostData logs that the store has lost its data, and tells the observer.
func (l *Limiter) lostData(loss *loss) {
	if logger := l.logger(); logger != nil {
		if loss.grace > 0 {
			logger.Warn("throttr: the store is new, or has lost its data: no places in flight are granted yet", "for", loss.grace.Round(time.Millisecond))
		} else {
			logger.Warn("throttr: the store has lost its data: more places in flight than Max may be held")
		}
	}
	if l.observer != nil {
		l.observer(context.Background(), Event{Kind: DataLost})
	}
}
