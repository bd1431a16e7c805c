package throttr

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// circuit keeps callers from a server that can't be reached. The first of them have waited
// for it in vain; the others fail at once, while the pool tries again by itself, alone,
// after pauses that grow. The mutex of the pool guards it.
type circuit struct {
	cause error // why the last try failed; nil while the server is in use
}

// refusal returns why there is no use in waiting, nil if there is.
func (c *circuit) refusal() error {
	if c.cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, c.cause)
}

// recover tries to reach the server until it can be, or the pool ends.
func (p *pool[T]) recover() {
	most := min(p.cfg.MaxRetryPause, math.MaxInt64/2) // a tenth more does not wrap
	for pause := min(p.cfg.RetryPause, most); ; pause += min(pause, most-pause) {
		// A tenth more or less keeps the clients of a server that returns apart.
		if sleep(p.ctx, pause-pause/10+rand.N(pause/5+1)) != nil {
			return
		}
		if p.take(p.puddle.Acquire(p.ctx)) == nil {
			return
		}
	}
}
