package sweep

import (
	"context"
	"sync"
)

// A Remover removes records that a single PURGE must not remove, because clients may use their
// names again.
type Remover interface {
	// Remove removes the records of targets, unless somebody uses them again, and returns how
	// many records it has removed. Targets are those of Decisions, at most 256 of them, each
	// of them once per sweep. Several calls run at the same time. Remove ends soon after ctx.
	Remove(ctx context.Context, targets []string) (records int, err error)
}

// maxRemovals bounds the calls of a Remover that run at the same time. Such a call waits most of
// the time, and all orphans of a server have to be removed before they expire.
const maxRemovals = 256

// removals are the calls of a Remover that a sweep makes.
type removals struct {
	remover Remover
	permits chan struct{} // has an element for each call that runs
	given   map[string]struct{}
	calls   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	records int        // that were removed
	err     error      // the first
}

func newRemovals(r Remover) *removals {
	return &removals{remover: r, permits: make(chan struct{}, maxRemovals), given: make(map[string]struct{})}
}

// start makes the Remover remove the records of those targets that this sweep has not removed
// already. It waits while too many calls run.
func (r *removals) start(ctx context.Context, targets []string) {
	var fresh []string
	for _, t := range targets {
		if _, ok := r.given[t]; !ok {
			r.given[t] = struct{}{}
			fresh = append(fresh, t)
		}
	}
	if len(fresh) == 0 {
		return
	}
	select {
	case r.permits <- struct{}{}:
	case <-ctx.Done():
		return // the sweep is about to end with the error of ctx
	}
	r.calls.Go(func() {
		records, err := r.remover.Remove(ctx, fresh)
		<-r.permits
		r.mu.Lock()
		defer r.mu.Unlock()
		r.records += records
		if r.err == nil {
			r.err = err
		}
	})
}

// wait waits for all calls. It returns how many records they have removed, and the first error.
func (r *removals) wait() (records int, err error) {
	r.calls.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records, r.err
}
