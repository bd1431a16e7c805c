package sweep

import (
	"context"
	"sync"
)

// maxRemovals bounds the calls of a Remove that run at the same time. Such a call waits most of
// the time, and all orphans of a server have to be removed before they expire.
const maxRemovals = 256

// removals are the calls of a Remove that a sweep makes.
type removals struct {
	remove  Remove
	permits chan struct{}   // has an element for each call that runs
	given   map[string]bool // the targets of this sweep
	calls   sync.WaitGroup

	mu      sync.Mutex // guards what follows, until all calls have ended
	records int        // that were removed
	err     error      // the first
}

// start has the records of targets removed. It waits while too many calls run.
func (r *removals) start(ctx context.Context, targets []string) {
	select {
	case r.permits <- struct{}{}:
	case <-ctx.Done():
		return // the sweep is about to end with the error of ctx
	}
	r.calls.Go(func() {
		records, err := r.remove(ctx, targets)
		<-r.permits
		r.mu.Lock()
		defer r.mu.Unlock()
		r.records += records
		if r.err == nil {
			r.err = err
		}
	})
}
