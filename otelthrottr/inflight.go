package otelthrottr

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/inflight"
)

// InFlight returns an observer for [inflight.WithObserver], which reports the metrics throttr.inflight.*: how many
// calls were decided, by outcome and name of the limit (calls), how long they waited (waited), and how long
// places were held, and whether they were lost (held). Of the options, only [WithMeterProvider] applies. Keys are
// never attributes. It returns an error if the MeterProvider fails to make a metric, and panics if an option is nil.
func InFlight(opts ...Option) (inflight.Observer, error) {
	m := optionsOf("InFlight", opts).meters.Meter(ScopeName)
	var errs []error
	calls, err := m.Int64Counter("throttr.inflight.calls", metric.WithUnit("{call}"), metric.WithDescription("Calls that wanted places."))
	errs = append(errs, err)
	seconds := func(name, description string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description))
		errs = append(errs, err)
		return h
	}
	waited := seconds("throttr.inflight.waited", "Time from a call to its decision.")
	held := seconds("throttr.inflight.held", "Time for which places were held.")
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("otelthrottr: %w", err)
	}
	return func(ctx context.Context, e inflight.Event) {
		outcome := e.Kind.String()
		if e.Kind == inflight.Denied && admission.InShadow(ctx) {
			outcome = wouldDeny
		}
		attributes := metric.WithAttributeSet(attribute.NewSet(
			attribute.String("throttr.outcome", outcome), attribute.String("throttr.limit_name", e.Limit.Name), attribute.Bool("throttr.degraded", e.Degraded),
		))
		switch e.Kind {
		case inflight.Acquired, inflight.Denied, inflight.Failed:
			calls.Add(ctx, 1, attributes)
			waited.Record(ctx, e.Waited.Seconds(), attributes)
		case inflight.Released, inflight.Lost:
			held.Record(ctx, e.Held.Seconds(), attributes)
		}
	}, nil
}

// ObserveInFlight reports the [inflight.Limiter.Stats] of a limiter as the metrics throttr.inflight.in_use,
// throttr.inflight.waiting, throttr.inflight.keys and throttr.inflight.lost. These are figures of this process. Of the
// options, only [WithMeterProvider] applies. A program that has several limiters gives each a provider of its own.
//
// The metrics end when the Registration is unregistered. ObserveInFlight returns an error if the MeterProvider fails to
// make a metric. It panics if the limiter or an option is nil.
func ObserveInFlight(l *inflight.Limiter, opts ...Option) (metric.Registration, error) {
	if l == nil {
		panic("otelthrottr: ObserveInFlight: limiter is nil")
	}
	m := optionsOf("ObserveInFlight", opts).meters.Meter(ScopeName)
	var errs []error
	gauge := func(name, unit, description string) metric.Int64Observable {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return g
	}
	inUse := gauge("throttr.inflight.in_use", "{place}", "Places that the process holds.")
	waiting := gauge("throttr.inflight.waiting", "{call}", "Calls that wait for a place.")
	keys := gauge("throttr.inflight.keys", "{key}", "Keys and names with places that are held or wanted.")
	lost, err := m.Int64ObservableCounter("throttr.inflight.lost", metric.WithUnit("{place}"), metric.WithDescription("Places that were lost."))
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("otelthrottr: %w", err)
	}
	r, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := l.Stats()
		o.ObserveInt64(inUse, int64(s.InUse))
		o.ObserveInt64(waiting, int64(s.Waiting))
		o.ObserveInt64(keys, int64(s.Keys))
		o.ObserveInt64(lost, int64(s.Lost))
		return nil
	}, inUse, waiting, keys, lost)
	if err != nil {
		return nil, fmt.Errorf("otelthrottr: %w", err)
	}
	return r, nil
}
