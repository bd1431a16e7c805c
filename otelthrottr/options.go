package otelthrottr

import (
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option changes how [New] works.
type Option func(*options)

type options struct {
	meters    metric.MeterProvider
	tracers   trace.TracerProvider
	operation bool
	entity    bool
	spans     bool
	identity  bool
}

// WithMeterProvider has the metrics made by p. Default, and with nil: the global one.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithTracerProvider has the spans of [WithSpans] made by p; the events of other spans do not
// need it. Default, and with nil: the global one.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithOperation adds throttr.operation to the metrics: as many times the series as there are
// operations. It is for programs that have a few and name them themselves.
func WithOperation() Option { return func(o *options) { o.operation = true } }

// WithEntity adds throttr.entity to the metrics: as many times the series as there are
// entities, which users can be many of. It is for programs that have a few, such as tenants.
func WithEntity() Option { return func(o *options) { o.entity = true } }

// WithSpans makes a span of each decision, which began Duration before it is observed, in
// place of an event of the current span. A decision without a current span then begins a
// trace.
func WithSpans() Option { return func(o *options) { o.spans = true } }

// WithIdentity adds to spans and their events, but not to metrics, who a decision is about:
// throttr.entity, or throttr.key where there is none, and the caller's metadata as
// throttr.metadata.<name>. This may be personal data.
func WithIdentity() Option { return func(o *options) { o.identity = true } }
