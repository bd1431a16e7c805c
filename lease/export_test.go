package lease

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/throttr-go/throttr/window"
)

// HotHits is how many hits make a key hot.
const HotHits = hotHits

// Stumble makes the process stop now and then before it reads the clock.
func (b *Backend) Stumble(often int, longest time.Duration) {
	b.stop = func() {
		if rand.IntN(often) == 0 {
			time.Sleep(rand.N(longest))
		}
	}
}

// HitAndSource is Hit, and reports whether the backend that b takes from has answered.
func (b *Backend) HitAndSource(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, asked bool, err error) {
	return b.take(ctx, key, l, n)
}
