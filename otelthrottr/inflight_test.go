package otelthrottr_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
)

func TestPlacesInFlightAreMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithClock(time.Now))
		defer store.Close()
		tel := &telemetry{t: t, reader: sdkmetric.NewManualReader()}
		provider := otelthrottr.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(tel.reader)))
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
			"throttr.inflight.in_use": 1, "throttr.inflight.waiting": 1, "throttr.inflight.keys": 1, "throttr.inflight.lost": 0, "throttr.inflight.losses": 0,
			"throttr.inflight.outages":       0,
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
		got = tel.figures()
		require.Equal(t, []int64{1, 7, 9}, []int64{got["throttr.inflight.callsfailed"], got["throttr.inflight.waitedfailed"], got["throttr.inflight.heldlost"]})
		require.NoError(t, r.Unregister())
	})
}
