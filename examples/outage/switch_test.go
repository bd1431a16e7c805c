package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// store is a backend that fails while it is away. It has all methods by which a RateLimit decides, of which middleware
// uses most. Other methods go on.
type store struct {
	throttr.Backend
	away atomic.Bool
}

func (s *store) Hit(ctx context.Context, key string, l throttr.Limit, n uint64) (window.Window, error) {
	return s.one(ctx, s.Backend.Hit, l.For(key, n))
}

func (s *store) Take(ctx context.Context, key string, l throttr.Limit, n uint64) (window.Window, error) {
	return s.one(ctx, s.Backend.Take, l.For(key, n))
}

func (s *store) Charge(ctx context.Context, key string, l throttr.Limit, n uint64) (window.Window, error) {
	return s.one(ctx, s.Backend.Charge, l.For(key, n))
}

func (s *store) Peek(ctx context.Context, key string, l throttr.Limit, n uint64) (window.Window, error) {
	return s.one(ctx, s.Backend.Peek, l.For(key, n))
}

// one makes a call for one limit.
func (s *store) one(ctx context.Context, call func(context.Context, string, throttr.Limit, uint64) (window.Window, error),
	t throttr.Take) (window.Window, error) {
	if s.away.Load() {
		return window.Window{}, throttr.ErrUnavailable
	}
	return call(ctx, t.Key, t.Limit, t.N)
}

func (s *store) TakeAll(ctx context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
	if s.away.Load() {
		return false, throttr.ErrUnavailable
	}
	return s.Backend.TakeAll(ctx, takes, windows)
}

func (s *store) GiveBack(ctx context.Context, key string, l throttr.Limit, n uint64, id int64) (bool, error) {
	if s.away.Load() {
		return false, throttr.ErrUnavailable
	}
	return s.Backend.GiveBack(ctx, key, l, n, id)
}

func TestAServiceWhileTheStoreIsAway(t *testing.T) {
	for _, test := range []struct {
		policy throttr.Policy
		status int
	}{
		{throttr.ReturnError, http.StatusOK}, // the default of Config.OnFailure serves
		{throttr.AllowHits, http.StatusOK},
		{throttr.DenyHits, http.StatusServiceUnavailable},
	} {
		backend := memory.New()
		defer backend.Close()
		s := &store{Backend: backend}
		limiter := throttr.NewRateLimit(s, throttr.WithPolicy(test.policy), throttr.WithLogger(nil))
		limit, err := httplimit.New(limiter, httplimit.Config{Limits: []throttr.Limit{
			{Name: "minute", Max: 2, Scale: time.Minute}, {Name: "hour", Max: 5, Scale: time.Hour},
		}})
		require.NoError(t, err)
		handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		status := func() int {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			return w.Code
		}
		require.Equal(t, http.StatusOK, status())
		s.away.Store(true)
		require.Equal(t, test.status, status(), test.policy)
		s.away.Store(false)
		require.Eventually(t, func() bool { return status() == http.StatusTooManyRequests }, 10*time.Second,
			10*time.Millisecond, "the limits decide again")
	}
}
