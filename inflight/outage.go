package inflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/window"
)

// shareWait is how long a call waits for a place of the share of the process before it asks the store again.
const shareWait = time.Second

// ask grants places of the store, or by the policy while it is away.
func (l *Limiter) ask(h *Hold, key string, limit *Limit, n uint64, wait bool) (granted bool, err error) {
	for {
		granted, err = l.exchange(h, key, limit, n, wait)
		if err == nil || l.policy == Refuse || h.ctx.Err() != nil || h.want == nil || !isOutage(err) {
			return granted, err
		}
		h.want = nil
		most := uint64(window.Unlimited)
		if l.policy == Share {
			most = max(limit.Max/l.processes, 1)
			most -= min(most, l.pumps.held(key, limit.Name))
		}
		ctx, cancel := h.ctx, func() {}
		if wait {
			ctx, cancel = context.WithTimeout(ctx, shareWait)
		}
		granted, err = l.take(ctx, l.instead, h, key, limit, n, most, wait)
		cancel()
		h.instead = granted
		if !wait || granted || h.ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			l.pumps.watch.Decided(granted, nil)
			return granted, err
		}
	}
}

// exchange grants places of the store. The Hold has no want if the bounds of the Limiter do not let it ask.
func (l *Limiter) exchange(h *Hold, key string, limit *Limit, n uint64, wait bool) (granted bool, err error) {
	w, err := l.pumps.want(h, key, limit, n, wait)
	if err != nil {
		return false, err
	}
	select {
	case d := <-w.ready:
		l.pumps.readies.Put(w.ready)
		return d.state == held, d.err
	case <-h.ctx.Done():
		l.pumps.release(w)
		return false, h.ctx.Err()
	}
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
