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

func (s *store) err() error {
	if s.away.Load() {
		return throttr.ErrUnavailable
	}
	return nil
}

func (s *store) Hit(ctx context.Context, key string, l throttr.Limit, n uint64) (w window.Window, err error) {
	if err = s.err(); err == nil {
		w, err = s.Backend.Hit(ctx, key, l, n)
	}
	return w, err
}

func (s *store) Take(ctx context.Context, key string, l throttr.Limit, n uint64) (w window.Window, err error) {
	if err = s.err(); err == nil {
		w, err = s.Backend.Take(ctx, key, l, n)
	}
	return w, err
}

func (s *store) Charge(ctx context.Context, key string, l throttr.Limit, n uint64) (w window.Window, err error) {
	if err = s.err(); err == nil {
		w, err = s.Backend.Charge(ctx, key, l, n)
	}
	return w, err
}

func (s *store) Peek(ctx context.Context, key string, l throttr.Limit, n uint64) (w window.Window, err error) {
	if err = s.err(); err == nil {
		w, err = s.Backend.Peek(ctx, key, l, n)
	}
	return w, err
}

func (s *store) TakeAll(ctx context.Context, takes []throttr.Take, windows []window.Window) (ok bool, err error) {
	if err = s.err(); err == nil {
		ok, err = s.Backend.TakeAll(ctx, takes, windows)
	}
	return ok, err
}

func (s *store) GiveBack(ctx context.Context, key string, l throttr.Limit, n uint64, id int64) (ok bool, err error) {
	if err = s.err(); err == nil {
		ok, err = s.Backend.GiveBack(ctx, key, l, n, id)
	}
	return ok, err
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
