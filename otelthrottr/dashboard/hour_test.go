package dashboard_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
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
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
	"github.com/throttr-go/throttr/window"
)

// hour returns what the exporter writes in an hour of a service, from midnight of 1 January 2000 on, in the format
// of OpenMetrics. The service
//
//   - serves calls of a customer who sends more than 600 a minute;
//   - checks passwords, which somebody guesses;
//   - sends mails, 2 a second, and converts files, 4 at a time.
//
// Its store is away from the 35th minute to the 40th.
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
		store := testkit.Hooked{Backend: backend, Before: func(context.Context, ...window.Take) error {
			time.Sleep(rand.N(time.Millisecond))
			if minute := time.Since(start) / time.Minute; minute >= 35 && minute < 40 {
				return throttr.ErrUnavailable
			}
			return nil
		}}
		limiter := throttr.NewRateLimit(store, throttr.WithObserver(observer), throttr.WithLogger(nil), throttr.WithFallback(fallback))
		strict := throttr.NewRateLimit(store, throttr.WithObserver(observer), throttr.WithLogger(nil))
		places := inflight.New(backend, inflight.WithObserver(inFlight))
		defer places.Close()
		_, err = otelthrottr.ObserveInFlight(places, provider)
		require.NoError(t, err)

		var callers sync.WaitGroup
		defer callers.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// every makes a call again and again, in a goroutine.
		every := func(pause time.Duration, call func()) {
			callers.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(pause)
					call()
				}
			})
		}
		api := throttr.Limit{Name: "api", Max: 600, Scale: time.Minute}
		login := throttr.Limit{Name: "login", Max: 5, Scale: 15 * time.Minute}
		mail := throttr.Limit{Name: "mail", Max: 2, Scale: time.Second, Algorithm: throttr.TokenBucket}
		every(60*time.Millisecond, func() { limiter.Take(ctx, "customer", api, 1) })
		every(400*time.Millisecond, func() { strict.Take(ctx, "account", login, 1) })
		every(400*time.Millisecond, func() { limiter.Wait(ctx, "provider", mail, 1) })
		for range 6 {
			every(time.Second, func() {
				if hold, err := places.Acquire(ctx, "disk", inflight.Limit{Name: "exports", Max: 4}, 1); err == nil {
					time.Sleep(rand.N(time.Minute))
					hold.Release()
				}
			})
		}

		var text bytes.Buffer
		encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeOpenMetrics))
		for time.Since(start) < time.Hour {
			time.Sleep(15 * time.Second)
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
