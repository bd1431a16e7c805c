package otelthrottr_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
)

// BenchmarkHitObserved measures what the observer adds to a hit in memory.
func BenchmarkHitObserved(b *testing.B) {
	for _, c := range []struct {
		name   string
		opts   []otelthrottr.Option // nil: no observer
		inSpan bool
	}{
		{"no observer", nil, false},
		{"metrics", []otelthrottr.Option{}, false},
		{"metrics and event", []otelthrottr.Option{}, true},
		{"metrics and span", []otelthrottr.Option{otelthrottr.WithSpans()}, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			ctx := b.Context()
			tracers := sdktrace.NewTracerProvider()
			if c.inSpan {
				spanned, span := tracers.Tracer("bench").Start(ctx, "request")
				defer span.End()
				ctx = spanned
			}
			var opts []throttr.Option
			if c.opts != nil {
				meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
				observer, err := otelthrottr.New(append(c.opts,
					otelthrottr.WithMeterProvider(meters), otelthrottr.WithTracerProvider(tracers))...)
				if err != nil {
					b.Fatal(err)
				}
				opts = append(opts, throttr.WithObserver(observer))
			}
			backend := memory.New()
			defer backend.Close()
			limiter := throttr.NewRateLimit(backend, opts...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := limiter.Hit(ctx, "user:42", time.Hour, 1<<60); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTenMillionKeys serves requests with as many keys, and reports the time series and the memory that
// they leave.
func BenchmarkTenMillionKeys(b *testing.B) {
	const keys = 10_000_000
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		tel := newTelemetry(b)
		backend := memory.New()
		key := 0
		limit, err := httplimit.New(throttr.NewRateLimit(backend, throttr.WithObserver(tel.observe)), httplimit.Config{
			Limits: []throttr.Limit{{Name: "api", Max: 100, Scale: time.Hour}}, PlainKeys: true,
			Key: func(*http.Request) string { return "user:" + strconv.Itoa(key) },
		})
		if err != nil {
			b.Fatal(err)
		}
		handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest("GET", "/", nil)
		for key = range keys {
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		series := 0
		for _, m := range tel.metrics() {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				series += len(data.DataPoints)
			case metricdata.Histogram[float64]:
				series += len(data.DataPoints)
			}
		}
		b.ReportMetric(float64(series), "series")
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
		b.ReportMetric(float64(backend.Stats().Windows), "windows")
		if err := backend.Close(); err != nil {
			b.Error(err)
		}
	}
}
