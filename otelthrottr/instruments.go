package otelthrottr

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/throttr-go/throttr/internal/api"
)

// Option is an option of [New], [InFlight] and [ObserveInFlight].
type Option func(*instruments)

// WithMeterProvider sets the provider of the meter. Default, and if p is nil: the global one.
func WithMeterProvider(p metric.MeterProvider) Option { return func(i *instruments) { i.provider = p } }

// instruments makes metrics of a meter, and collects the errors.
type instruments struct {
	provider metric.MeterProvider
	metric.Meter
	errs []error
}

// newInstruments returns what makes the metrics of an exported function with these options. It panics in its name if
// an option is nil.
func newInstruments(function string, opts []Option) *instruments {
	i := new(instruments)
	api.Apply("otelthrottr: "+function, i, opts)
	if i.provider == nil {
		i.provider = otel.GetMeterProvider()
	}
	i.Meter = i.provider.Meter(ScopeName)
	return i
}

func (i *instruments) counter(name, unit, description string) metric.Int64Counter {
	c, err := i.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	i.errs = append(i.errs, err)
	return c
}

func (i *instruments) histogram(name, unit, description string, bounds ...float64) metric.Float64Histogram {
	h, err := i.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(bounds...))
	i.errs = append(i.errs, err)
	return h
}

// outages makes a metric that counts stores that are away.
func (i *instruments) outages(name string) metric.Int64UpDownCounter {
	c, err := i.Int64UpDownCounter(name, metric.WithUnit("{outage}"),
		metric.WithDescription("Stores that are away at present."))
	i.errs = append(i.errs, err)
	if err == nil {
		c.Add(context.Background(), 0) // so that there is a series before the first outage
	}
	return c
}

func (i *instruments) gauge(name, unit, description string) metric.Int64ObservableGauge {
	g, err := i.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	i.errs = append(i.errs, err)
	return g
}

func (i *instruments) total(name, unit, description string) metric.Int64ObservableCounter {
	c, err := i.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	i.errs = append(i.errs, err)
	return c
}

// err returns why metrics could not be made, or nil.
func (i *instruments) err() error {
	if err := errors.Join(i.errs...); err != nil {
		return fmt.Errorf("otelthrottr: %w", err)
	}
	return nil
}
