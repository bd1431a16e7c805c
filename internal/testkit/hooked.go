package testkit

import (
	"context"

	"github.com/throttr-go/throttr/window"
)

// Hooked is a backend that leaves its calls to Around, which makes one by calling do, or returns an error. Around
// gets the name of the call, such as "take all", and what is taken, asked for or given back: nothing in an exchange.
// Set, Reset, Delete and lists go to the Backend at once.
type Hooked struct {
	window.Backend
	Around func(ctx context.Context, call string, takes []window.Take, do func() error) error
}

// Hit makes a hit.
func (h Hooked) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return h.one(ctx, "hit", h.Backend.Hit, l.For(key, n))
}

// Take makes a take.
func (h Hooked) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return h.one(ctx, "take", h.Backend.Take, l.For(key, n))
}

// Charge makes a charge.
func (h Hooked) Charge(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return h.one(ctx, "charge", h.Backend.Charge, l.For(key, n))
}

// Peek looks up.
func (h Hooked) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return h.one(ctx, "peek", h.Backend.Peek, l.For(key, n))
}

// one makes a call that returns a window.
func (h Hooked) one(ctx context.Context, call string,
	f func(context.Context, string, window.Limit, uint64) (window.Window, error), t window.Take,
) (w window.Window, err error) {
	err = h.Around(ctx, call, []window.Take{t}, func() (err error) {
		w, err = f(ctx, t.Key, t.Limit, t.N)
		return err
	})
	return w, err
}

// TakeAll makes all takes.
func (h Hooked) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (ok bool, err error) {
	err = h.Around(ctx, "take all", takes, func() (err error) {
		ok, err = h.Backend.TakeAll(ctx, takes, windows)
		return err
	})
	return ok, err
}

// GiveBack gives back.
func (h Hooked) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (ok bool, err error) {
	err = h.Around(ctx, "give back", []window.Take{l.For(key, n)}, func() (err error) {
		ok, err = h.Backend.GiveBack(ctx, key, l, n, id)
		return err
	})
	return ok, err
}

// Exchange makes an exchange.
func (h Hooked) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	return h.Around(ctx, "exchange", nil, func() error { return h.Backend.Exchange(ctx, claims, places) })
}

// Broken returns a Hooked whose calls fail with err, unless that is nil.
func Broken(b window.Backend, err error) Hooked {
	return Hooked{b, func(_ context.Context, _ string, _ []window.Take, do func() error) error {
		if err != nil {
			return err
		}
		return do()
	}}
}
