package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// A limit that the backend cannot keep must not leave requests without a limit.
//
//evidence:http A limit that can't be kept is 500, not unlimited
func TestMistakeInTheProgramIs500WhateverThePolicy(t *testing.T) {
	for name, mistake := range map[string]error{
		"RangeError": &throttr.RangeError{},
		"ErrRange":   fmt.Errorf("store: %w", window.ErrRange),
		"ErrScale":   fmt.Errorf("store: %w", window.ErrScale),
	} {
		for _, policy := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits, throttr.DenyHits} {
			for _, limits := range [][]throttr.Limit{
				{httplimit.PerMinute(3)},
				{httplimit.PerMinute(3), httplimit.PerHour(3)},
			} {
				t.Run(fmt.Sprint(name, ", ", policy, ", ", limits), func(t *testing.T) {
					var event throttr.Event
					observer := throttr.Observer(func(_ context.Context, e throttr.Event) {
						if e.Limit.Scale == time.Minute {
							event = e
						}
					})
					s := newBrokenSite(t, httplimit.Config{Limits: limits, OnDenied: httplimit.Serve, OnFailure: httplimit.Serve},
						func(scale time.Duration) error {
							if scale == time.Minute {
								return mistake
							}
							return nil
						},
						throttr.WithPolicy(policy), throttr.WithFallback(memory.New()), throttr.WithObserver(observer))
					res := s.get(alice)
					body, err := io.ReadAll(res.Body)
					require.NoError(t, err)
					require.Equal(t, 500, res.StatusCode)
					require.Equal(t, "The rate limit is misconfigured.\n", string(body))
					require.Empty(t, res.Header.Get("Retry-After"))
					require.Zero(t, s.served)
					require.Equal(t, throttr.EventFailed, event.Kind, "the observer receives the error")
					require.ErrorIs(t, event.Err, mistake)
				})
			}
		}
	}
}

func TestNilArgumentsAreRefusedOrHaveDefaults(t *testing.T) {
	limits := []throttr.Limit{httplimit.PerHour(1)}
	require.PanicsWithValue(t, "httplimit: NewMiddleware: limiter is nil", func() { httplimit.New(nil, httplimit.Config{Limits: limits}) })

	limit, err := httplimit.New(throttr.NewRateLimit(memory.New()), httplimit.Config{Limits: limits})
	require.NoError(t, err)
	require.PanicsWithValue(t, "httplimit: the handler to wrap is nil", func() { limit(nil) })
	require.Panics(t, func() { limit(http.HandlerFunc(nil)) })

	// Nil functions of a Config have defaults.
	w := httptest.NewRecorder()
	limit(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, 404, w.Code)
}
