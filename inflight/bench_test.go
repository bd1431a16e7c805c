package inflight_test

import (
	"fmt"
	"testing"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
)

func BenchmarkPair(b *testing.B) {
	for _, held := range []int{0, 1} {
		b.Run(fmt.Sprint("held=", held), func(b *testing.B) {
			store := memory.New()
			defer store.Close()
			l := inflight.New(store)
			defer l.Close()
			limit := inflight.Limit{Name: "exports", Max: 20}
			for range held {
				l.TryAcquire(b.Context(), "customer:7", limit, 1)
			}
			b.ReportAllocs()
			for b.Loop() {
				h, _, _ := l.TryAcquire(b.Context(), "customer:7", limit, 1)
				h.Release()
			}
		})
	}
}
