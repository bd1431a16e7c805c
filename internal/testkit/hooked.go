package testkit

import (
	"context"

	"github.com/throttr-go/throttr/window"
)

// Hooked is a backend that asks Before each call that counts or looks up, with what the call takes, and each exchange
// of places, with nothing. A call fails with its error.
type Hooked struct {
	window.Backend
	Before func(ctx context.Context, takes ...window.Take) error
}

// Hit asks, and makes a hit.
func (h Hooked) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if err := h.Before(ctx, l.For(key, n)); err != nil {
		return window.Window{}, err
	}
	return h.Backend.Hit(ctx, key, l, n)
}

// Take asks, and makes a take.
func (h Hooked) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if err := h.Before(ctx, l.For(key, n)); err != nil {
		return window.Window{}, err
	}
	return h.Backend.Take(ctx, key, l, n)
}

// TakeAll asks once, and makes all takes.
func (h Hooked) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	if err := h.Before(ctx, takes...); err != nil {
		return false, err
	}
	return h.Backend.TakeAll(ctx, takes, windows)
}

// Peek asks, and looks up.
func (h Hooked) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if err := h.Before(ctx, l.For(key, n)); err != nil {
		return window.Window{}, err
	}
	return h.Backend.Peek(ctx, key, l, n)
}

// Exchange asks, and makes an exchange.
func (h Hooked) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	if err := h.Before(ctx); err != nil {
		return err
	}
	return h.Backend.Exchange(ctx, claims, places)
}

// Broken returns a backend whose calls and exchanges fail with err, unless that is nil.
func Broken(b window.Backend, err error) Hooked {
	return Hooked{b, func(context.Context, ...window.Take) error { return err }}
}
