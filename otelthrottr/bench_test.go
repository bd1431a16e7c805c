package otelthrottr_test

import (
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/throttr-go/throttr"
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
