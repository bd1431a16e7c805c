package otelthrottr

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/throttr-go/throttr/lease"
)

// ObserveLeases reports what leases have taken ahead, their [lease.Backend.Blocks], as the metrics
// throttr.lease.* of the package's documentation. These are figures of this process: servers do not
// know them. Of the options, only [WithMeterProvider] applies. A program that has several
// backends with leases gives each a provider of its own, or the metrics are those of one of them.
//
// The metrics end when the Registration is unregistered. ObserveLeases returns an error if the
// MeterProvider fails to make a metric. It panics if leases or an option is nil.
func ObserveLeases(leases *lease.Backend, opts ...Option) (metric.Registration, error) {
	if leases == nil {
		panic("otelthrottr: ObserveLeases: leases is nil")
	}
	r, err := registerLeases(leases, optionsOf("ObserveLeases", opts).meters.Meter(ScopeName))
	if err != nil {
		return nil, fmt.Errorf("otelthrottr: %w", err)
	}
	return r, nil
}

func registerLeases(leases *lease.Backend, m metric.Meter) (metric.Registration, error) {
	var errs []error
	gauge := func(name, unit, description string) metric.Int64Observable {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return g
	}
	counter := func(name, unit, description string) metric.Int64Observable {
		c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	instruments := []metric.Int64Observable{
		gauge("throttr.lease.keys", "{key}", "Hot keys, each with its scale and limit."),
		gauge("throttr.lease.held", "{place}", "Places that can be spent."),
		counter("throttr.lease.spent", "{place}", "Places that hits got."),
		counter("throttr.lease.returned", "{place}", "Places that were given back."),
		counter("throttr.lease.lost", "{place}", "Places that stayed counted until their windows ended."),
		counter("throttr.lease.takes", "{take}", "Takes of blocks."),
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all := make([]metric.Observable, len(instruments))
	for i := range instruments {
		all[i] = instruments[i]
	}
	var mu sync.Mutex // guards spent
	var spent uint64  // the greatest so far: places on their way make it vary, and a counter does not decrease
	return m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := leases.Blocks()
		mu.Lock()
		spent = max(spent, s.Spent)
		s.Spent = spent
		mu.Unlock()
		for i, n := range []uint64{uint64(s.Keys), s.Held, s.Spent, s.Returned, s.Lost, s.Takes} {
			o.ObserveInt64(instruments[i], int64(n))
		}
		return nil
	}, all...)
}
