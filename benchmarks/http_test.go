package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/didip/tollbooth/v7"
	toll "github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

const keyField = "X-Key"

func keyOf(r *http.Request) string { return r.Header.Get(keyField) }

// BenchmarkHTTP asks what middleware costs a request that comes over a connection.
func BenchmarkHTTP(b *testing.B) {
	compare(b, []load{{1000, 1, true}, {1000, 64, true}},
		contender{"httplimit", served(ours(1))},
		contender{"httplimit, two limits", served(ours(2))},
		contender{"none", served(func(next http.Handler) http.Handler { return next })},
		contender{"httprate", served(httprate.LimitBy(most, scale, func(r *http.Request) (string, error) { return keyOf(r), nil }))},
		contender{"tollbooth", served(func(next http.Handler) http.Handler {
			l := tollbooth.NewLimiter(most, &toll.ExpirableOptions{DefaultExpirationTTL: scale})
			l.SetHeader(keyField, nil).SetIPLookups([]string{"RemoteAddr"})
			return tollbooth.LimitHandler(l, next)
		})},
	)
}

// ours is httplimit with n limits in memory.
func ours(n int) func(http.Handler) http.Handler {
	cfg := httplimit.Config{Key: keyOf}
	for i := range n {
		cfg.Limits = append(cfg.Limits, throttr.Limit{Name: fmt.Sprint("limit", i), Max: most, Scale: scale + time.Duration(i)*time.Hour})
	}
	limit, err := httplimit.New(throttr.NewRateLimit(memory.New()), cfg)
	if err != nil {
		panic(err)
	}
	return limit
}

// served serves on a listener, and calls with connections that stay open.
func served(wrap func(http.Handler) http.Handler) func(b *testing.B) (call, func()) {
	return func(b *testing.B) (call, func()) {
		srv := httptest.NewServer(wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		transport := &http.Transport{MaxIdleConnsPerHost: 1000}
		return func(ctx context.Context, key string) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
			if err != nil {
				return err
			}
			r.Header.Set(keyField, key)
			res, err := transport.RoundTrip(r)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			_, err = io.Copy(io.Discard, res.Body)
			return allowed(res.StatusCode == http.StatusOK, err)
		}, func() { transport.CloseIdleConnections(); srv.Close() }
	}
}
