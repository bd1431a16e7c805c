package otelthrottr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
)

var errDown = errors.New("down")

// telemetry is a provider of meters and its output.
type telemetry struct {
	t        testing.TB
	reader   *sdkmetric.ManualReader
	provider *sdkmetric.MeterProvider
}

func newTelemetry(t testing.TB) *telemetry {
	reader := sdkmetric.NewManualReader()
	return &telemetry{t, reader, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
}

// observe passes events to an observer.
func (tel *telemetry) observe(events ...throttr.Event) {
	observer, err := otelthrottr.New(otelthrottr.WithMeterProvider(tel.provider))
	require.NoError(tel.t, err)
	for _, e := range events {
		observer(tel.t.Context(), e)
	}
}

// metrics returns the metrics by name.
func (tel *telemetry) metrics() map[string]metricdata.Metrics {
	var all metricdata.ResourceMetrics
	require.NoError(tel.t, tel.reader.Collect(context.Background(), &all))
	byName := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		require.Equal(tel.t, otelthrottr.ScopeName, scope.Scope.Name)
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// counts returns the values of a counter by attributes.
func (tel *telemetry) counts(name string) map[string]int64 {
	sum := tel.metrics()[name].Data.(metricdata.Sum[int64])
	require.True(tel.t, sum.IsMonotonic)
	counts := map[string]int64{}
	for _, p := range sum.DataPoints {
		counts[encoded(p.Attributes)] = p.Value
	}
	return counts
}

// figures returns the values of all metrics: of those with outcomes, by name and outcome; of histograms, the sums.
func (tel *telemetry) figures() map[string]int64 {
	all := map[string]int64{}
	add := func(name string, set attribute.Set, n int64) {
		outcome, _ := set.Value("throttr.outcome")
		all[name+outcome.AsString()] += n
		require.NotContains(tel.t, encoded(set), "secret-key")
	}
	for name, m := range tel.metrics() {
		switch data := m.Data.(type) {
		case metricdata.Gauge[int64]:
			all[name] = data.DataPoints[0].Value
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(name, p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(name, p.Attributes, int64(p.Sum))
			}
		}
	}
	return all
}

func encoded(set attribute.Set) string { return set.Encoded(attribute.DefaultEncoder()) }

func hit(kind throttr.EventKind, change func(*throttr.Event)) throttr.Event {
	e := throttr.Event{
		Kind: kind, Call: "hit", Key: "user:42", Limit: throttr.Limit{Max: 5, Scale: time.Minute, Algorithm: throttr.FixedWindow},
		N: 2, Duration: 3 * time.Millisecond,
		Result: throttr.Result{Allowed: kind == throttr.EventAllowed, Count: 4, Limit: 5, Remaining: 1},
	}
	switch kind {
	case throttr.EventDenied:
		e.Result = throttr.Result{Count: 6, Limit: 5, RetryAfter: 1500 * time.Millisecond}
	case throttr.EventFailed:
		e.Result, e.Err = throttr.Result{Limit: 5}, errDown
	case throttr.EventReset:
		e.Call, e.N, e.Result = "reset", 0, throttr.Result{}
	}
	if change != nil {
		change(&e)
	}
	return e
}

func degraded(e *throttr.Event) { e.Result.Degraded, e.Err = true, errDown }

// Metrics have these attributes, and no others: they stay few, whatever the keys and errors are.
func TestMetricsOfEachKindOfEvent(t *testing.T) {
	tel := newTelemetry(t)
	tel.observe(
		hit(throttr.EventAllowed, nil),
		hit(throttr.EventAllowed, nil),
		hit(throttr.EventAllowed, degraded),
		hit(throttr.EventDenied, nil),
		hit(throttr.EventDenied, degraded),
		hit(throttr.EventFailed, nil),
		hit(throttr.EventReset, nil),
		hit(throttr.EventReset, nil),
		hit(throttr.EventFailed, func(e *throttr.Event) { e.Call, e.N, e.Result = "reset", 0, throttr.Result{} }),
		hit(throttr.EventFailed, func(e *throttr.Event) { e.Call, e.N, e.Result = "forget", 0, throttr.Result{} }),
		hit(throttr.EventWouldDeny, func(e *throttr.Event) { e.Call, e.Limit.Shadow = "take", true }),
		hit(throttr.EventAllowed, func(e *throttr.Event) { e.Call, e.Duration = "wait", time.Minute }),
		hit(throttr.EventSettled, func(e *throttr.Event) { e.Reserved, e.N, e.Result = 3, 0, throttr.Result{} }),
		hit(throttr.EventSettled, func(e *throttr.Event) { e.Reserved, e.Err = 3, errDown }),
	)
	require.Equal(t, map[string]int64{
		"throttr.degraded=false,throttr.outcome=allowed":                  3,
		"throttr.degraded=false,throttr.outcome=would_deny":               1,
		"error.type=_OTHER,throttr.degraded=true,throttr.outcome=allowed": 1,
		"throttr.degraded=false,throttr.outcome=denied":                   1,
		"error.type=_OTHER,throttr.degraded=true,throttr.outcome=denied":  1,
		"error.type=_OTHER,throttr.degraded=false,throttr.outcome=failed": 1,
	}, tel.counts("throttr.hits"))
	require.Equal(t, map[string]int64{
		"throttr.outcome=done":                     2,
		"error.type=_OTHER,throttr.outcome=failed": 2,
	}, tel.counts("throttr.resets"))
	require.Equal(t, map[string]int64{
		"throttr.outcome=done":                     1,
		"error.type=_OTHER,throttr.outcome=failed": 1,
	}, tel.counts("throttr.settlements"))

	all := tel.metrics()
	require.Len(t, all, 7, "with throttr.limit.usage and throttr.outages")
	require.Equal(t, 60.0, all["throttr.wait.duration"].Data.(metricdata.Histogram[float64]).DataPoints[0].Sum)
	require.Equal(t, "{hit}", all["throttr.hits"].Unit)
	require.Equal(t, "{reset}", all["throttr.resets"].Unit)
	require.Equal(t, "s", all["throttr.hit.duration"].Unit)
	for _, m := range all {
		require.NotEmpty(t, m.Description)
	}
	durations := all["throttr.hit.duration"].Data.(metricdata.Histogram[float64]).DataPoints
	require.Len(t, durations, 6, "resets, waits and settlements are not among them")
	for _, p := range durations {
		require.InDelta(t, 0.003*float64(p.Count), p.Sum, 1e-9, "seconds")
		require.Equal(t, 1e-6, p.Bounds[0], "fine enough for a memory backend")
		require.Contains(t, tel.counts("throttr.hits"), encoded(p.Attributes), "as throttr.hits")
	}
}

// How full a limit is, is known after each decision of the store. Exporters drop all that they send together if one
// string, such as a name, is no UTF-8.
func TestUsageOfLimits(t *testing.T) {
	tel := newTelemetry(t)
	named := func(e *throttr.Event) { e.Limit.Name = "o\xff" }
	tel.observe(
		hit(throttr.EventAllowed, named), // 4 of 5
		hit(throttr.EventDenied, named),  // 6 of 5
		hit(throttr.EventFailed, nil), hit(throttr.EventReset, nil),
		hit(throttr.EventAllowed, func(e *throttr.Event) { e.Result.Degraded = true }),
		hit(throttr.EventAllowed, func(e *throttr.Event) { e.Result = throttr.Result{Allowed: true, Limit: throttr.Unlimited} }),
		hit(throttr.EventDenied, func(e *throttr.Event) { e.Result = throttr.Result{RetryAfter: throttr.Never} }),
		hit(throttr.EventDenied, func(e *throttr.Event) { e.Result = throttr.Result{Limit: 5, RetryAfter: throttr.Never} }),
	)
	points := tel.metrics()["throttr.limit.usage"].Data.(metricdata.Histogram[float64]).DataPoints
	require.Len(t, points, 1)
	require.Equal(t, 1, points[0].Attributes.Len())
	name, _ := points[0].Attributes.Value("throttr.limit_name")
	require.Equal(t, "o\ufffd", name.AsString())
	require.Equal(t, []float64{0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1}, points[0].Bounds)
	require.Equal(t, []uint64{0, 0, 0, 1, 0, 0, 0, 1}, points[0].BucketCounts)
}

func TestErrorsHaveTheirTypeAsAttribute(t *testing.T) {
	for want, errs := range map[string][]error{
		"canceled":   {context.Canceled, &throttr.RequestError{Err: context.Canceled}},
		"timeout":    {context.DeadlineExceeded, fmt.Errorf("of a conn: %w", throttr.ErrStalled)},
		"overloaded": {&throttr.RequestError{Err: throttr.ErrOverloaded}, throttr.ErrFull},
		"connection": {throttr.ErrConnect, throttr.ErrUnavailable},
		"closed":     {throttr.ErrClosed},
		"invalid":    {&throttr.RangeError{}, throttr.ErrScale},
		"_OTHER":     {errDown, throttr.ErrBatch},
	} {
		tel := newTelemetry(t)
		for _, err := range errs {
			tel.observe(hit(throttr.EventFailed, func(e *throttr.Event) { e.Err = err }))
		}
		require.Equal(t, map[string]int64{
			"error.type=" + want + ",throttr.degraded=false,throttr.outcome=failed": int64(len(errs)),
		}, tel.counts("throttr.hits"))
	}
}

func TestTheGlobalProviderIsTheDefault(t *testing.T) {
	tel := newTelemetry(t)
	defer otel.SetMeterProvider(otel.GetMeterProvider())
	otel.SetMeterProvider(tel.provider)
	for _, opts := range [][]otelthrottr.Option{nil, {otelthrottr.WithMeterProvider(nil)}} {
		observer, err := otelthrottr.New(opts...)
		require.NoError(t, err)
		observer(t.Context(), hit(throttr.EventAllowed, nil))
	}
	require.Equal(t, map[string]int64{"throttr.degraded=false,throttr.outcome=allowed": 2}, tel.counts("throttr.hits"))
}

// failing is a MeterProvider whose meters fail to make counters and gauges.
type failing struct{ metricnoop.MeterProvider }

func (failing) Meter(string, ...metric.MeterOption) metric.Meter { return failingMeter{} }

type failingMeter struct{ metricnoop.Meter }

func (failingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errDown
}

func (failingMeter) Int64ObservableGauge(string, ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	return nil, errDown
}

// The error of a meter is that of all functions, and nil is a mistake in the program.
func TestWhatCannotBeObservedIsAnError(t *testing.T) {
	fails := otelthrottr.WithMeterProvider(failing{})
	observer, err := otelthrottr.New(fails)
	require.ErrorIs(t, err, errDown)
	require.Nil(t, observer)
	inFlight, err := otelthrottr.InFlight(fails)
	require.ErrorIs(t, err, errDown)
	require.Nil(t, inFlight)
	store := inflight.New(memory.New())
	defer store.Close()
	_, err = otelthrottr.ObserveInFlight(store, fails)
	require.ErrorIs(t, err, errDown)
	require.PanicsWithValue(t, "otelthrottr: New: option 2 is nil", func() { otelthrottr.New(fails, nil) })
	require.Panics(t, func() { otelthrottr.ObserveInFlight(nil) })
}

func TestOutagesThatLastAreCounted(t *testing.T) {
	tel := newTelemetry(t)
	away := func() int64 {
		sum := tel.metrics()["throttr.outages"].Data.(metricdata.Sum[int64])
		require.False(t, sum.IsMonotonic)
		require.Len(t, sum.DataPoints, 1)
		return sum.DataPoints[0].Value
	}
	tel.observe()
	require.Zero(t, away(), "a query finds a store that is there, and not no data")
	for i, kind := range []throttr.EventKind{throttr.EventUnavailable, throttr.EventUnavailable, throttr.EventAvailable, throttr.EventAvailable} {
		tel.observe(throttr.Event{Kind: kind, Err: errDown, Duration: time.Second})
		require.EqualValues(t, []int64{1, 2, 1, 0}[i], away())
	}
	require.NotContains(t, tel.metrics(), "throttr.hits")
}

func TestPlacesInFlightAreMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithClock(time.Now))
		defer store.Close()
		tel := newTelemetry(t)
		provider := otelthrottr.WithMeterProvider(tel.provider)
		observer, err := otelthrottr.InFlight(provider)
		require.NoError(t, err)
		l := inflight.New(store, inflight.WithObserver(observer))
		defer l.Close()
		r, err := otelthrottr.ObserveInFlight(l, provider)
		require.NoError(t, err)
		limit := inflight.Limit{Name: "exports", Max: 1}
		h, ok, err := l.TryAcquire(t.Context(), "secret-key", limit, 1)
		require.True(t, ok, "%v", err)
		_, ok, err = l.TryAcquire(t.Context(), "secret-key", limit, 1)
		require.False(t, ok, "%v", err)
		done := make(chan *inflight.Hold)
		go func() {
			h, _ := l.Acquire(t.Context(), "secret-key", limit, 1)
			done <- h
		}()
		synctest.Wait()
		require.Equal(t, map[string]int64{
			"throttr.inflight.in_use": 1, "throttr.inflight.waiting": 1, "throttr.inflight.keys": 1,
			"throttr.inflight.lost": 0, "throttr.inflight.losses": 0, "throttr.inflight.outages": 0,
			"throttr.inflight.callsacquired": 1, "throttr.inflight.callsdenied": 1,
			"throttr.inflight.waitedacquired": 0, "throttr.inflight.waiteddenied": 0,
			"throttr.inflight.used": 2, // full, twice
		}, tel.figures())
		for _, name := range []string{"waited", "used"} {
			require.LessOrEqual(t, tel.metrics()["throttr.inflight."+name].Data.(metricdata.Histogram[float64]).DataPoints[0].Bounds[0], 0.1)
		}
		require.IsType(t, metricdata.Sum[int64]{}, tel.metrics()["throttr.inflight.lost"].Data)
		time.Sleep(3 * time.Second)
		h.Release()
		next := <-done
		time.Sleep(2 * time.Second)
		next.Release()
		got := tel.figures()
		require.EqualValues(t, 5, got["throttr.inflight.heldreleased"])
		require.EqualValues(t, 3, got["throttr.inflight.waitedacquired"])
		require.Zero(t, got["throttr.inflight.in_use"])
		observer(t.Context(), inflight.Event{Kind: inflight.Unavailable, Err: throttr.ErrUnavailable})
		require.EqualValues(t, 1, tel.figures()["throttr.inflight.outages"])
		observer(t.Context(), inflight.Event{Kind: inflight.Available, Held: time.Second})
		require.Contains(t, tel.figures(), "throttr.inflight.outages")
		require.Zero(t, tel.figures()["throttr.inflight.outages"])
		observer(t.Context(), inflight.Event{Kind: inflight.Failed, Limit: limit, Waited: 7 * time.Second})
		observer(t.Context(), inflight.Event{Kind: inflight.Lost, Limit: limit, Held: 9 * time.Second})
		for _, l := range []inflight.Limit{{Name: "none"}, {Name: "all", Max: throttr.Unlimited}} {
			observer(t.Context(), inflight.Event{Kind: inflight.Acquired, Limit: l, InUse: 3})
		}
		require.Len(t, tel.metrics()["throttr.inflight.used"].Data.(metricdata.Histogram[float64]).DataPoints, 1, "the exports")
		got = tel.figures()
		require.Equal(t, []int64{1, 7, 9}, []int64{got["throttr.inflight.callsfailed"], got["throttr.inflight.waitedfailed"], got["throttr.inflight.heldlost"]})
		require.NoError(t, r.Unregister())
	})
}
