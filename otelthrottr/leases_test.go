package otelthrottr_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
)

func TestStatsOfLeasesAreMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithCleanPeriod(0))
		defer store.Close()
		leases := lease.New(store)
		defer leases.Close()
		tel := &telemetry{t: t, reader: sdkmetric.NewManualReader()}
		r, err := otelthrottr.ObserveLeases(leases, otelthrottr.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(tel.reader))))
		require.NoError(t, err)
		limiter := throttr.NewRateLimit(leases)
		for range 500 {
			_, err := limiter.Hit(context.Background(), "api", time.Minute, 1<<20)
			require.NoError(t, err)
			synctest.Wait()
		}
		s := leases.Blocks()
		require.Positive(t, s.Held)
		require.Equal(t, map[string]int64{
			"throttr.lease.keys": 1, "throttr.lease.held": int64(s.Held), "throttr.lease.spent": int64(s.Spent),
			"throttr.lease.returned": int64(s.Returned), "throttr.lease.lost": 0, "throttr.lease.takes": int64(s.Takes),
		}, tel.figures())
		require.IsType(t, metricdata.Sum[int64]{}, tel.metrics()["throttr.lease.spent"].Data)
		require.InDelta(t, 500, s.Spent, 10, "the first hits are not from blocks")
		time.Sleep(time.Second)
		after := tel.figures()
		require.Zero(t, after["throttr.lease.held"])
		require.EqualValues(t, s.Held+s.Returned, after["throttr.lease.returned"])
		require.NoError(t, r.Unregister())
		require.Empty(t, tel.figures())
	})
}
