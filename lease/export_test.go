package lease

import (
	"math/rand/v2"
	"time"
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
