package otelthrottr

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/throttr-go/throttr"
)

// ScopeName is the name of the meter.
const ScopeName = "github.com/throttr-go/throttr/otelthrottr"

// buckets are the boundaries of throttr.hit.duration in seconds. A hit takes less than a
// microsecond in memory, and some hundred milliseconds on a distant server.
var buckets = []float64{
	1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3,
	0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
}

// waitBuckets are the boundaries of throttr.wait.duration in seconds.
var waitBuckets = []float64{1e-3, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

// usageBounds are the boundaries of throttr.limit.usage: parts of what a limit holds.
var usageBounds = []float64{0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1}

// observer is what observes events. All but labels is immutable.
type observer struct {
	options
	hits     metric.Int64Counter
	duration metric.Float64Histogram
	waits    metric.Float64Histogram
	usage    metric.Float64Histogram
	resets   metric.Int64Counter
	settled  metric.Int64Counter
	outages  metric.Int64UpDownCounter

	mu     sync.RWMutex // guards labels
	labels map[labelsID]labels
}

// New returns an observer for [throttr.WithObserver]. It is safe for concurrent use. New returns
// an error if the MeterProvider fails to make a metric. It panics if an option is nil.
func New(opts ...Option) (throttr.Observer, error) {
	o := &observer{options: optionsOf("New", opts), labels: map[labelsID]labels{}}
	m := o.instruments()
	o.hits = m.counter("throttr.hits", "{hit}", "Hits that were decided, and hits that failed.")
	o.duration = m.histogram("throttr.hit.duration", "s", "Durations of hits.", buckets...)
	o.waits = m.histogram("throttr.wait.duration", "s", "Durations of waits for takes.", waitBuckets...)
	o.usage = m.histogram("throttr.limit.usage", "1",
		"Part of what a limit holds that is counted, right after a decision.", usageBounds...)
	o.settled = m.counter("throttr.settlements", "{settlement}",
		"Takes of reservations that were settled, and those that could not be settled.")
	o.resets = m.counter("throttr.resets", "{reset}", "Windows that were reset, and resets that failed.")
	o.outages = m.outages("throttr.outages")
	if err := m.err(); err != nil {
		return nil, err
	}
	return o.observe, nil
}

// observe is a [throttr.Observer].
func (o *observer) observe(ctx context.Context, e throttr.Event) {
	switch e.Kind {
	case throttr.EventUnavailable:
		o.outages.Add(ctx, 1)
		return
	case throttr.EventAvailable:
		o.outages.Add(ctx, -1)
		return
	}
	c := classOf(e)
	l := o.labelsOf(c, e)
	switch {
	case c.reset:
		o.resets.Add(ctx, 1, l.add...)
	case c.settled:
		o.settled.Add(ctx, 1, l.add...)
	case e.Call == "wait":
		o.hits.Add(ctx, 1, l.add...)
		o.waits.Record(ctx, e.Duration.Seconds(), l.record...)
	default:
		o.hits.Add(ctx, 1, l.add...)
		o.duration.Record(ctx, e.Duration.Seconds(), l.record...)
	}
	if isUsage(c, e) {
		o.usage.Record(ctx, float64(e.Result.Count)/float64(e.Result.Limit), l.named...)
	}
}

// isUsage reports whether the event says how full the limit is: it is a decision of the store, on a limit that can be
// full.
func isUsage(c class, e throttr.Event) bool {
	if c.reset || c.settled || c.degraded || c.outcome == failed {
		return false
	}
	return e.Result.Limit > 0 && e.Result.Limit < throttr.Unlimited && e.Result.RetryAfter < throttr.Never
}
