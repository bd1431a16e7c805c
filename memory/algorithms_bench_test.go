package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// What does a hit of a RateLimit cost with each algorithm? The limit is 10,000. One key is hit so often
// that its hits are refused nearly always; of 100,000 keys, those of all are allowed.
func BenchmarkHitEachAlgorithm(b *testing.B) {
	for _, a := range []window.Algorithm{window.FixedWindow, window.AlignedWindow, window.TokenBucket, window.SlidingWindow, window.SlidingLog} {
		for _, n := range []int{1, 100_000} {
			b.Run(fmt.Sprintf("%v/%d", a, n), func(b *testing.B) {
				limiter := throttr.NewRateLimit(newBench(b, memory.WithMaxTimes(1<<28)), throttr.WithAlgorithm(a))
				names := make([]string, n)
				for i := range names {
					names[i] = fmt.Sprint("user:", i)
				}
				hit := func(name string) {
					if _, err := limiter.Hit(b.Context(), name, time.Second, 10_000); err != nil {
						b.Fatal(err)
					}
				}
				for _, name := range names {
					hit(name)
				}
				b.ReportAllocs()
				for b.Loop() {
					hit(names[rand.IntN(n)])
				}
			})
		}
	}
}
