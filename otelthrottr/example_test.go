package otelthrottr_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
)

func Example() {
	ctx := context.Background()
	reader := sdkmetric.NewManualReader() // really: a reader that exports
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer meters.Shutdown(ctx)

	observer, err := otelthrottr.New(otelthrottr.WithMeterProvider(meters))
	if err != nil {
		panic(err)
	}
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend, throttr.WithObserver(observer))
	for range 5 {
		limiter.Hit(ctx, "user:42", time.Minute, 3)
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		panic(err)
	}
	var lines []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			for _, p := range sum.DataPoints {
				lines = append(lines, fmt.Sprintln(m.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), p.Value))
			}
		}
	}
	slices.Sort(lines)
	fmt.Print(strings.Join(lines, ""))
	// Output:
	// throttr.hits throttr.degraded=false,throttr.outcome=allowed 3
	// throttr.hits throttr.degraded=false,throttr.outcome=denied 2
	// throttr.outages  0
}
