package throttr_test

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// BenchmarkWhatDoesADenialCost hits a window that the client knows to be full.
func BenchmarkWhatDoesADenialCost(b *testing.B) {
	srv := mockserver.RunT(b)
	limiter := throttr.NewRateLimit(testkit.Connect[uint16](b, srv, throttr.Config{}).Backend())
	for range 3 {
		limiter.Hit(b.Context(), "full", time.Hour, 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		if res, err := limiter.Hit(b.Context(), "full", time.Hour, 1); err != nil || res.Allowed {
			b.Fatal(res, err)
		}
	}
}
