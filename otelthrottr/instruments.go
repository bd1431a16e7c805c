package otelthrottr

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// instruments makes metrics, and collects the errors of a meter.
type instruments struct {
	metric.Meter
	errs []error
}

// instruments returns what makes the metrics of this package.
func (o *options) instruments() *instruments { return &instruments{Meter: o.meters.Meter(ScopeName)} }

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

// outages makes a metric of stores that are away.
func (i *instruments) outages(name string) metric.Int64UpDownCounter {
	c, err := i.Int64UpDownCounter(name, metric.WithUnit("{outage}"),
		metric.WithDescription("Stores that are away at present."))
	i.errs = append(i.errs, err)
	if err == nil {
		c.Add(context.Background(), 0) // so that there is a series before the first outage
	}
	return c
}

// err returns why metrics could not be made, or nil.
func (i *instruments) err() error {
	if err := errors.Join(i.errs...); err != nil {
		return fmt.Errorf("otelthrottr: %w", err)
	}
	return nil
}

// figure is a metric of this process.
type figure struct {
	name, unit, description string
	counter                 bool // not a gauge
}

// register reports figures, whose values a function returns.
func register(o options, figures []figure, values func() []uint64) (metric.Registration, error) {
	made := o.instruments()
	var observables []metric.Int64Observable
	var all []metric.Observable
	for _, f := range figures {
		var m metric.Int64Observable
		var err error
		if f.counter {
			m, err = made.Int64ObservableCounter(f.name, metric.WithUnit(f.unit), metric.WithDescription(f.description))
		} else {
			m, err = made.Int64ObservableGauge(f.name, metric.WithUnit(f.unit), metric.WithDescription(f.description))
		}
		observables = append(observables, m)
		all = append(all, m)
		made.errs = append(made.errs, err)
	}
	if err := made.err(); err != nil {
		return nil, err
	}
	r, err := made.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for i, n := range values() {
			o.ObserveInt64(observables[i], int64(n))
		}
		return nil
	}, all...)
	made.errs = append(made.errs, err)
	return r, made.err()
}
