package backendtest

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

// method is a call of one of a backend's methods.
type method struct {
	name string
	call func(ctx context.Context, key string, scale time.Duration) error
}

// methods returns a call of each method that has a scale.
func methods(b window.Backend) []method {
	all := []method{
		{"Hit", func(ctx context.Context, key string, scale time.Duration) error {
			_, err := b.Hit(ctx, key, scale, 5, 1)
			return err
		}},
		{"Inc", func(ctx context.Context, key string, scale time.Duration) error {
			_, err := b.Inc(ctx, key, scale, 1)
			return err
		}},
		{"Get", func(ctx context.Context, key string, scale time.Duration) error {
			_, err := b.Get(ctx, key, scale)
			return err
		}},
		{"Set", func(ctx context.Context, key string, scale time.Duration) error {
			_, err := b.Set(ctx, key, scale, 5)
			return err
		}},
		{"Reset", b.Reset},
		{"Delete", func(ctx context.Context, key string, scale time.Duration) error {
			_, err := b.Delete(ctx, key, scale)
			return err
		}},
	}
	if taker, ok := b.(window.Taker); ok {
		all = append(all, takeMethods(taker)...)
	}
	return all
}

func takeMethods(b window.Taker) []method {
	return []method{
		{"Take", func(ctx context.Context, key string, scale time.Duration) error {
			_, _, err := b.Take(ctx, key, scale, 5, 1)
			return err
		}},
		{"a take of 0", func(ctx context.Context, key string, scale time.Duration) error {
			_, _, err := b.Take(ctx, key, scale, 5, 0)
			return err
		}},
		{"TakeAll", func(ctx context.Context, key string, scale time.Duration) error {
			limits := []window.Limit{{Key: key, Scale: time.Hour, Limit: 5, N: 1}, {Key: key, Scale: scale, Limit: 5, N: 1}}
			_, err := b.TakeAll(ctx, limits, make([]window.Window, 2))
			return err
		}},
		{"GiveBack", func(ctx context.Context, key string, scale time.Duration) error {
			_, err := b.GiveBack(ctx, key, scale, 1, 1)
			return err
		}},
	}
}

// allMethods returns methods, and a call of Delete without scales.
func allMethods(b window.Backend) []method {
	return append(methods(b), method{"Delete without scales", func(ctx context.Context, key string, _ time.Duration) error {
		_, err := b.Delete(ctx, key)
		return err
	}})
}

func testContext(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := calls{t, s}
	c.inc("k", time.Minute, 2)
	for _, key := range []string{"k", "none"} {
		for _, m := range allMethods(s.Backend) {
			if err := m.call(ctx, key, time.Minute); !errors.Is(err, context.Canceled) {
				t.Errorf("%s returns error %v, want context.Canceled", m.name, err)
			}
			c.want(c.get("k", time.Minute), 2, c.end(time.Minute))
			c.none(c.get("none", time.Minute))
			if t.Failed() {
				t.Fatalf("after %s of key %q", m.name, key)
			}
		}
	}
}

func testScales(t *testing.T, s Subject) {
	scales := []time.Duration{math.MinInt64, -time.Second, -1, 0, 1, 60, time.Microsecond, window.MinScale - 1}
	for _, scale := range scales {
		for _, m := range methods(s.Backend) {
			if err := m.call(t.Context(), "k", scale); !errors.Is(err, window.ErrScale) {
				t.Errorf("%s with a scale of %v returns error %v, want window.ErrScale", m.name, scale, err)
			}
		}
	}
	if n := (calls{t, s}).delete("k"); n != 0 {
		t.Errorf("there are %d windows of scales under 1 ms", n)
	}
}

// wantRange fails the test unless err matches window.ErrRange.
func (c calls) wantRange(call string, n uint64, err error) {
	c.Helper()
	if !errors.Is(err, window.ErrRange) {
		c.Errorf("%s of %d returns error %v, want window.ErrRange", call, n, err)
	}
}

// testRange is for backends with a bound.
func testRange(t *testing.T, s Subject) {
	c := calls{t, s}
	b, ctx, over := s.Backend, t.Context(), s.MaxCount+1
	want := func(name string, err error) {
		t.Helper()
		c.wantRange(name, over, err)
	}
	_, err := b.Hit(ctx, "k", time.Minute, over, 1)
	want("Hit with a limit", err)
	_, err = b.Hit(ctx, "k", time.Minute, 1, over)
	want("Hit with an increment", err)
	_, err = b.Inc(ctx, "k", time.Minute, over)
	want("Inc with an increment", err)
	_, err = b.Set(ctx, "k", time.Minute, over)
	want("Set with a count", err)
	c.none(c.get("k", time.Minute))
}

// testClosed is for backends that can be closed.
func testClosed(t *testing.T, s Subject) {
	closer, ok := s.Backend.(io.Closer)
	switch {
	case s.Close != nil:
		s.Close()
	case ok:
		if err := closer.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	default:
		return
	}
	for _, m := range allMethods(s.Backend) {
		if err := m.call(t.Context(), "k", time.Minute); !errors.Is(err, window.ErrClosed) {
			t.Errorf("%s after Close returns error %v, want window.ErrClosed", m.name, err)
		}
	}
}
