package otelthrottr

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/throttr-go/throttr/internal/api"
)

// Option is an option of [New], [InFlight], [ObserveInFlight] and [ObserveLeases].
type Option func(*options)

type options struct {
	meters metric.MeterProvider
}

// optionsOf returns the options of a function, with their defaults.
func optionsOf(function string, opts []Option) options {
	var o options
	api.Apply("otelthrottr: "+function, &o, opts)
	if o.meters == nil {
		o.meters = otel.GetMeterProvider()
	}
	return o
}

// WithMeterProvider sets the provider of the meter. Default, and if p is nil: the global one.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }
