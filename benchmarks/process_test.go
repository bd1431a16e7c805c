package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/didip/tollbooth/v7"
	toll "github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

// BenchmarkMemory asks what a decision in the process costs.
func BenchmarkMemory(b *testing.B) {
	var loads []load
	for _, keys := range []int{1, 1000, 100_000, 1_000_000} {
		loads = append(loads, load{keys, 1, false}, load{keys, 2, false})
	}
	compare(b, loads,
		contender{"throttr fixed", inMemory(throttr.FixedWindow, most, scale)},
		contender{"throttr bucket", inMemory(throttr.TokenBucket, 1<<27, time.Minute)},
		contender{"throttr aligned", inMemory(throttr.AlignedWindow, most, scale)},
		contender{"throttr sliding", inMemory(throttr.SlidingWindow, most, scale)},
		contender{"throttr log", inMemory(throttr.SlidingLog, 1<<22, 100*time.Millisecond)}, // it has the time of each call
		contender{"go-limiter", goLimiter},
		contender{"x_time_rate in a sync.Map", synced},
		contender{"throttled", throttledGCRA},
		contender{"ulule", ululeMemory},
	)
}

func inMemory(a throttr.Algorithm, n uint64, scale time.Duration) func(b *testing.B) (call, func()) {
	return func(*testing.B) (call, func()) {
		store := memory.New(memory.WithMaxKeys(1<<21), memory.WithMaxLog(1<<22))
		r := throttr.NewRateLimit(store)
		l := throttr.Limit{Max: n, Scale: scale, Algorithm: a}
		return func(ctx context.Context, key string) error {
			res, err := r.Take(ctx, key, l, 1)
			return allowed(res.Allowed, err)
		}, func() { store.Close() }
	}
}

func goLimiter(b *testing.B) (call, func()) {
	store := must(memorystore.New(&memorystore.Config{Tokens: most, Interval: scale}))(b)
	return func(ctx context.Context, key string) error {
		_, _, _, ok, err := store.Take(ctx, key)
		return allowed(ok, err)
	}, func() { store.Close(context.Background()) }
}

func synced(*testing.B) (call, func()) {
	var all sync.Map
	return func(_ context.Context, key string) error {
		l, ok := all.Load(key)
		if !ok {
			l, _ = all.LoadOrStore(key, rate.NewLimiter(rate.Limit(most/scale.Seconds()), most))
		}
		return allowed(l.(*rate.Limiter).Allow(), nil)
	}, func() {}
}

func throttledGCRA(b *testing.B) (call, func()) {
	store := must(memstore.NewCtx(0))(b)
	l := must(throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(most, scale), MaxBurst: most - 1}))(b)
	l.SetMaxCASAttemptsLimit(1 << 20) // with the default of 10, calls fail if two goroutines use one key
	return func(ctx context.Context, key string) error {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return allowed(!limited, err)
	}, func() {}
}

func ululeMemory(*testing.B) (call, func()) {
	l := ulule.New(ululememory.NewStore(), ulule.Rate{Period: scale, Limit: most})
	return func(ctx context.Context, key string) error {
		res, err := l.Get(ctx, key)
		return allowed(!res.Reached, err)
	}, func() {}
}

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

// BenchmarkServer asks what calls of a Throttr server cost: that of THROTTR_SERVERS, with values of 4 bytes, or a
// mock server, which only counts, and one that takes as long as a real one.
func BenchmarkServer(b *testing.B) {
	if os.Getenv("THROTTR_SERVERS") != "" {
		compareOn(b, "server")
		return
	}
	compareOn(b, "mock")
	compareOn(b, "mock, real times", mockserver.WithRealServiceTime())
}

func compareOn(b *testing.B, name string, opts ...mockserver.Option) {
	var contenders []contender
	for _, do := range []string{"hit", "increase", "query"} {
		contenders = append(contenders, contender{do + ", " + name, onServer(do, opts)})
	}
	compare(b, []load{{1000, 1, true}, {1000, 64, true}, {1000, 512, true}, {1, 64, true}}, contenders...)
}

// onServer hits a window, or does something to a counter, which is made if it is missing.
func onServer(do string, opts []mockserver.Option) func(b *testing.B) (call, func()) {
	return func(b *testing.B) (call, func()) {
		addr, end := os.Getenv("THROTTR_SERVERS"), func() {}
		if addr == "" {
			srv := must(mockserver.Start(append(opts, mockserver.WithValueSize(4))...))(b)
			addr, end = srv.Addr(), func() { srv.Close() }
		}
		client := must(throttr.Connect[uint32](b.Context(), throttr.Config{Servers: []string{addr}}))(b)
		r := throttr.NewRateLimit(client.Backend(), throttr.WithTimeout(10*time.Second))
		return func(ctx context.Context, key string) (err error) {
			ok := false
			switch do {
			case "hit":
				res, err := r.Hit(ctx, key, scale, most)
				return allowed(res.Allowed, err)
			case "increase":
				ok, err = client.Update(ctx, key, codec.Quota, codec.Increase, 1)
			case "query":
				_, ok, err = client.Query(ctx, key)
			}
			if err == nil && !ok {
				_, err = client.Insert(ctx, key, 1, codec.TTL[uint32]{Amount: 1, Unit: codec.Hours})
			}
			return err
		}, func() { client.Close(); end() }
	}
}
