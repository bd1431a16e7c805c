package otelthrottr

import (
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/throttr-go/throttr/lease"
)

// ObserveLeases reports what leases have taken ahead, their [lease.Backend.Blocks], as the metrics
// throttr.lease.* of the package's documentation. These are figures of this process: servers do not
// know them. A program that has several backends with leases gives each a provider of its own, or
// the metrics are those of one of them.
//
// The metrics end when the Registration is unregistered. ObserveLeases returns an error if the
// MeterProvider fails to make a metric. It panics if leases or an option is nil.
func ObserveLeases(leases *lease.Backend, opts ...Option) (metric.Registration, error) {
	if leases == nil {
		panic("otelthrottr: ObserveLeases: leases is nil")
	}
	var mu sync.Mutex // guards spent
	var spent uint64  // the greatest so far: places on their way make it vary, and a counter does not decrease
	return register(optionsOf("ObserveLeases", opts), []figure{
		{"throttr.lease.keys", "{key}", "Hot keys, each with its scale and limit.", false},
		{"throttr.lease.held", "{place}", "Places that can be spent.", false},
		{"throttr.lease.spent", "{place}", "Places that hits got.", true},
		{"throttr.lease.returned", "{place}", "Places that were given back.", true},
		{"throttr.lease.lost", "{place}", "Places that stayed counted until their windows ended.", true},
		{"throttr.lease.takes", "{take}", "Takes of blocks.", true},
	}, func() []uint64 {
		s := leases.Blocks()
		mu.Lock()
		defer mu.Unlock()
		spent = max(spent, s.Spent)
		return []uint64{uint64(s.Keys), s.Held, spent, s.Returned, s.Lost, s.Takes}
	})
}
