package otelthrottr

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
)

// The boundaries of the histograms throttr.inflight.*: in seconds, and in parts of the Max.
var (
	waitedBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	heldBuckets   = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	usedBuckets   = []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, .95, 1}
)

// InFlight returns an observer for [inflight.WithObserver], which reports the metrics throttr.inflight.*: how many
// calls were decided, by outcome and name of the limit (calls), how long they waited (waited), which part of the Max
// is held by all processes (used: 1 is full, more is over), how long places were held, and whether they were lost
// (held), and how many stores are away (outages). Keys are never attributes. It returns an error if the MeterProvider
// fails to make a metric, and panics if an option is nil.
func InFlight(opts ...Option) (inflight.Observer, error) {
	m := newInstruments("InFlight", opts)
	calls := m.counter("throttr.inflight.calls", "{call}", "Calls that wanted places.")
	outages := m.outages("throttr.inflight.outages")
	waited := m.histogram("throttr.inflight.waited", "s", "Time from a call to its decision.", waitedBuckets...)
	held := m.histogram("throttr.inflight.held", "s", "Time for which places were held.", heldBuckets...)
	used := m.histogram("throttr.inflight.used", "1",
		"Part of the Max that is held, by all processes, right after a decision.", usedBuckets...)
	if err := m.err(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, e inflight.Event) {
		name := named(e.Limit.Name)
		attributes := metric.WithAttributes(append(name,
			attribute.String("throttr.outcome", e.Kind.String()), attribute.Bool("throttr.degraded", e.Degraded))...)
		switch e.Kind {
		case inflight.Acquired, inflight.Denied, inflight.Failed:
			calls.Add(ctx, 1, attributes)
			waited.Record(ctx, e.Waited.Seconds(), attributes)
			if e.InUse > 0 && e.Limit.Max > 0 && e.Limit.Max < throttr.Unlimited {
				used.Record(ctx, float64(e.InUse)/float64(e.Limit.Max), metric.WithAttributes(name...))
			}
		case inflight.Released, inflight.Lost:
			held.Record(ctx, e.Held.Seconds(), attributes)
		case inflight.Unavailable:
			outages.Add(ctx, 1)
		case inflight.Available:
			outages.Add(ctx, -1)
		}
	}, nil
}

// ObserveInFlight reports the [inflight.Limiter.Stats] of a limiter as the metrics throttr.inflight.in_use,
// throttr.inflight.waiting, throttr.inflight.keys, throttr.inflight.lost and throttr.inflight.losses. These are
// figures of this process. A program that has several limiters gives each a provider of its own.
//
// The metrics end when the Registration is unregistered. ObserveInFlight returns an error if the MeterProvider fails to
// make a metric. It panics if the limiter or an option is nil.
func ObserveInFlight(l *inflight.Limiter, opts ...Option) (metric.Registration, error) {
	if l == nil {
		panic("otelthrottr: ObserveInFlight: limiter is nil")
	}
	m := newInstruments("ObserveInFlight", opts)
	inUse := m.gauge("throttr.inflight.in_use", "{place}", "Places that the process holds.")
	waiting := m.gauge("throttr.inflight.waiting", "{call}", "Calls that wait for a place.")
	keys := m.gauge("throttr.inflight.keys", "{key}", "Keys and names with places that are held or wanted.")
	lost := m.total("throttr.inflight.lost", "{place}", "Places that were lost.")
	losses := m.total("throttr.inflight.losses", "{loss}", "How often the store had lost its data.")
	if err := m.err(); err != nil {
		return nil, err
	}
	return m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := l.Stats()
		o.ObserveInt64(inUse, int64(s.InUse))
		o.ObserveInt64(waiting, int64(s.Waiting))
		o.ObserveInt64(keys, int64(s.Keys))
		o.ObserveInt64(lost, int64(s.Lost))
		o.ObserveInt64(losses, int64(s.Losses))
		return nil
	}, inUse, waiting, keys, lost, losses)
}
