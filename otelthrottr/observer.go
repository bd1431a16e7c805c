package otelthrottr

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/throttr-go/throttr"
)

// ScopeName is the name of the meter.
const ScopeName = "github.com/throttr-go/throttr/otelthrottr"

// hitBuckets are the boundaries of throttr.hit.duration in seconds. A hit takes less than a
// microsecond in memory, and some hundred milliseconds on a distant server.
var hitBuckets = []float64{
	1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3,
	0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
}

// waitBuckets are the boundaries of throttr.wait.duration in seconds.
var waitBuckets = []float64{1e-3, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

// usageBuckets are the boundaries of throttr.limit.usage: parts of what a limit holds.
var usageBuckets = []float64{0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1}

// observer observes events.
type observer struct {
	hits     metric.Int64Counter
	duration metric.Float64Histogram
	waits    metric.Float64Histogram
	usage    metric.Float64Histogram
	resets   metric.Int64Counter
	settled  metric.Int64Counter
	outages  metric.Int64UpDownCounter
}

// New returns an observer for [throttr.WithObserver]. It is safe for concurrent use. New returns
// an error if the MeterProvider fails to make a metric. It panics if an option is nil.
func New(opts ...Option) (throttr.Observer, error) {
	m := newInstruments("New", opts)
	o := &observer{
		hits:     m.counter("throttr.hits", "{hit}", "Hits that were decided, and hits that failed."),
		duration: m.histogram("throttr.hit.duration", "s", "Durations of hits.", hitBuckets...),
		waits:    m.histogram("throttr.wait.duration", "s", "Durations of waits for takes.", waitBuckets...),
		usage: m.histogram("throttr.limit.usage", "1",
			"Part of what a limit holds that is counted, right after a decision.", usageBuckets...),
		settled: m.counter("throttr.settlements", "{settlement}",
			"Takes of reservations that were settled, and those that could not be settled."),
		resets:  m.counter("throttr.resets", "{reset}", "Windows that were reset, and resets that failed."),
		outages: m.outages("throttr.outages"),
	}
	if err := m.err(); err != nil {
		return nil, err
	}
	return o.observe, nil
}

// observe is a [throttr.Observer].
func (o *observer) observe(ctx context.Context, e throttr.Event) {
	switch {
	case e.Kind == throttr.EventUnavailable:
		o.outages.Add(ctx, 1)
	case e.Kind == throttr.EventAvailable:
		o.outages.Add(ctx, -1)
	case e.Kind == throttr.EventSettled:
		count(ctx, o.settled, e)
	case e.Call == "reset", e.Call == "forget":
		count(ctx, o.resets, e)
	default:
		o.decision(ctx, e)
	}
}

// count counts what was done, or has failed.
func count(ctx context.Context, c metric.Int64Counter, e throttr.Event) {
	outcome := "done"
	if e.Err != nil {
		outcome = "failed"
	}
	c.Add(ctx, 1, metric.WithAttributes(attributesOf(outcome, e)...))
}

// decision reports a decision, or that there is none.
func (o *observer) decision(ctx context.Context, e throttr.Event) {
	outcome := strings.ReplaceAll(e.Kind.String(), " ", "_")
	all := metric.WithAttributeSet(attribute.NewSet(
		append(attributesOf(outcome, e), attribute.Bool("throttr.degraded", e.Result.Degraded))...))
	o.hits.Add(ctx, 1, all)
	if e.Call == "wait" {
		o.waits.Record(ctx, e.Duration.Seconds(), all)
	} else {
		o.duration.Record(ctx, e.Duration.Seconds(), all)
	}
	if e.Kind != throttr.EventFailed && isUsage(e.Result) {
		used := float64(e.Result.Count) / float64(e.Result.Limit)
		o.usage.Record(ctx, used, metric.WithAttributes(named(e.Limit.Name)...))
	}
}

// isUsage reports whether a result says how full the limit is: it is a decision of the store, on a limit that can be
// full.
func isUsage(r throttr.Result) bool {
	return !r.Degraded && r.Limit > 0 && r.Limit < throttr.Unlimited && r.RetryAfter < throttr.Never
}
