package dashboard_test

import (
	"bytes"
	"context"
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
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
	"github.com/throttr-go/throttr/window"
)

// scrapes is the time between two samples.
const scrapes = 15 * time.Second

// store is memory that is away from the 35th minute to the 40th.
type store struct {
	window.Backend
	start time.Time
}

func (s store) Take(ctx context.Context, key string, limit window.Limit, n uint64) (window.Window, error) {
	if minute := time.Since(s.start) / time.Minute; minute >= 35 && minute < 40 {
		return window.Window{}, throttr.ErrUnavailable
	}
	return s.Backend.Take(ctx, key, limit, n)
}

// hour returns what the exporter writes in an hour of a service, from midnight of 1 January 2000 on, in the format
// of OpenMetrics. The service serves more calls of a customer than its limit allows, checks passwords, sends mails
// that wait for their turn, and converts files, a few at a time.
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
		ctx, cancel := context.WithCancel(t.Context())
		var conversions sync.WaitGroup
		defer conversions.Wait()
		defer cancel()
		exports := inflight.Limit{Name: "exports", Max: 2}
		mail := throttr.Limit{Name: "mail", Max: 1, Scale: 10 * time.Second, Algorithm: throttr.TokenBucket}
		var text bytes.Buffer
		encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeOpenMetrics))
		for time.Since(start) < time.Hour {
			for range 20 {
				limiter.Take(ctx, "customer", throttr.Limit{Name: "api", Max: 60, Scale: time.Minute}, 1)
			}
			strict.Take(ctx, "account", throttr.Limit{Name: "login", Max: 5, Scale: 15 * time.Minute}, 1)
			limiter.Wait(ctx, "provider", mail, 1)
			conversions.Go(func() {
				if hold, err := places.Acquire(ctx, "disk", exports, 1); err == nil {
					time.Sleep(25 * time.Second)
					hold.Release()
				}
			})
			if hold, ok, _ := places.TryAcquire(ctx, "disk", exports, 2); ok {
				hold.Release()
			}
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
