package dashboard_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
	"github.com/throttr-go/throttr/window"
)

// scrapes is the time between two samples.
const scrapes = 15 * time.Second

// store is memory at the end of a network. It is away from the 35th minute to the 40th, and silent in the first of
// these.
type store struct {
	window.Backend
	start time.Time
}

// reach returns when a request has reached the store.
func (s store) reach(ctx context.Context) error {
	delay := time.Duration(300+rand.ExpFloat64()*400) * time.Microsecond
	switch minute := time.Since(s.start) / time.Minute; {
	case minute == 35:
		delay = time.Hour
	case minute > 35 && minute < 40:
		return throttr.ErrUnavailable
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(delay):
		return nil
	}
}

func (s store) Take(ctx context.Context, key string, limit window.Limit, n uint64) (window.Window, error) {
	if err := s.reach(ctx); err != nil {
		return window.Window{}, err
	}
	return s.Backend.Take(ctx, key, limit, n)
}

func (s store) Peek(ctx context.Context, key string, limit window.Limit, n uint64) (window.Window, error) {
	if err := s.reach(ctx); err != nil {
		return window.Window{}, err
	}
	return s.Backend.Peek(ctx, key, limit, n)
}

// hour returns what the exporter writes in an hour of a service, from midnight of 1 January 2000 on, in the format
// of OpenMetrics. The service
//
//   - serves some calls a second to each of ten customers, of 600 a minute; one sends more from the 10th minute on;
//   - checks passwords, which somebody guesses in the 20th minute;
//   - sends mails, 2 a second, and converts files, 4 at a time, more of them from the 15th minute to the 25th.
func hour(t *testing.T) (samples []byte) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		reader, err := exporter.New(exporter.WithRegisterer(registry))
		require.NoError(t, err)
		provider := otelthrottr.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
		observer, err := otelthrottr.New(provider)
		require.NoError(t, err)
		inFlight, err := otelthrottr.InFlight(provider)
		require.NoError(t, err)
		backend, fallback, start := memory.New(), memory.New(), time.Now()
		defer backend.Close()
		defer fallback.Close()
		limiter := throttr.NewRateLimit(store{backend, start}, throttr.WithObserver(observer), throttr.WithLogger(nil), throttr.WithFallback(fallback))
		strict := throttr.NewRateLimit(store{backend, start}, throttr.WithObserver(observer), throttr.WithLogger(nil))
		places := inflight.New(backend, inflight.WithObserver(inFlight))
		defer places.Close()
		_, err = otelthrottr.ObserveInFlight(places, provider)
		require.NoError(t, err)

		var callers sync.WaitGroup
		defer callers.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// every makes a call again and again, in a goroutine, after pauses of about the time that pause returns.
		every := func(pause func() time.Duration, call func()) {
			callers.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(time.Duration((0.5 + rand.Float64()) * float64(pause())))
					call()
				}
			})
		}
		between := func(from, to time.Duration) bool { return time.Since(start) >= from && time.Since(start) < to }
		api := throttr.Limit{Name: "api", Max: 600, Scale: time.Minute}
		for customer := range 10 {
			pause := func() time.Duration {
				if customer == 0 && between(10*time.Minute, 30*time.Minute) {
					return 60 * time.Millisecond
				}
				return time.Duration(150+50*customer) * time.Millisecond
			}
			every(pause, func() { limiter.Take(ctx, string(rune('a'+customer)), api, 1) })
		}
		login := throttr.Limit{Name: "login", Max: 5, Scale: 15 * time.Minute}
		every(func() time.Duration { return 400 * time.Millisecond }, func() {
			account := "guessed"
			if !between(20*time.Minute, 25*time.Minute) {
				account = time.Now().String()
			}
			strict.Take(ctx, account, login, 1)
		})
		mail := throttr.Limit{Name: "mail", Max: 2, Scale: time.Second, Algorithm: throttr.TokenBucket}
		every(func() time.Duration { return 600 * time.Millisecond }, func() { limiter.Wait(ctx, "provider", mail, 1) })
		every(func() time.Duration { return 3 * time.Second }, func() { limiter.Wait(ctx, "provider", mail, 2) })
		exports := inflight.Limit{Name: "exports", Max: 4}
		var waiting atomic.Int32
		busy := func() time.Duration {
			if between(15*time.Minute, 25*time.Minute) {
				return 15 * time.Second
			}
			return 30 * time.Second
		}
		every(busy, func() {
			if waiting.Load() > 10 {
				return
			}
			callers.Go(func() {
				waiting.Add(1)
				hold, err := places.Acquire(ctx, "disk", exports, 1)
				waiting.Add(-1)
				if err != nil {
					return
				}
				defer hold.Release()
				time.Sleep(time.Duration(30+rand.IntN(90)) * time.Second)
			})
		})

		var text bytes.Buffer
		encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeOpenMetrics))
		for time.Since(start) < time.Hour {
			time.Sleep(scrapes)
			families, err := registry.Gather()
			require.NoError(t, err)
			for _, family := range families {
				for _, m := range family.Metric {
					m.TimestampMs = new(time.Now().UnixMilli())
				}
				require.NoError(t, encoder.Encode(family))
			}
		}
		samples = append(text.Bytes(), "# EOF\n"...)
	})
	return samples
}
