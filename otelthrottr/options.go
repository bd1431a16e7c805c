package otelthrottr

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/throttr-go/throttr/internal/api"
)

// Option is an option of [New].
type Option func(*options)

type options struct {
	meters   metric.MeterProvider
	tracers  trace.TracerProvider
	spans    bool
	identity bool
}

// optionsOf returns the options of a function, with their defaults.
func optionsOf(function string, opts []Option) options {
	var o options
	api.Apply("otelthrottr: "+function, &o, opts)
	if o.meters == nil {
		o.meters = otel.GetMeterProvider()
	}
	if o.tracers == nil {
		o.tracers = otel.GetTracerProvider()
	}
	return o
}

// WithMeterProvider sets the provider of the meter. Default, and if p is nil: the global one.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithTracerProvider sets the provider of the tracer, which only [WithSpans] uses. Default, and if
// p is nil: the global one.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithSpans makes a span for each decision instead of an event of the current span. The span
// begins when the hit or reset began. If there is no current span, it is the root of a trace.
func WithSpans() Option { return func(o *options) { o.spans = true } }

// WithIdentity adds to spans and events, but not to metrics: throttr.key, the caller's metadata (see
// entities.WithMetadata) as throttr.metadata.<name>, and the texts of errors, which can have the key. This
// may be personal data.
func WithIdentity() Option { return func(o *options) { o.identity = true } }
