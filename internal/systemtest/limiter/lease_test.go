package limiter_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/mockserver"
)

// leaseFaults are what happens while processes with leases hit a key.
type leaseFaults struct {
	cut, die, reset bool
}

func TestProcessesWithLeasesNeverExceedTheLimit(t *testing.T) {
	for name, faults := range map[string]leaseFaults{
		"no faults": {}, "everything": {cut: true, die: true, reset: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testLeases(t, faults) })
		})
	}
}

// testLeases lets processes with leases hit one key. The server is the witness of when windows were open.
func testLeases(t *testing.T, f leaseFaults) {
	const processes, callers, scales, limit = 8, 4, 6, 2000
	const scale, age = time.Second, 50 * time.Millisecond
	var log history[uint16]
	srv := testkit.InMemory(t, mockserver.WithObserver(log.observe))
	srv.Inject(mockserver.Fault{Delay: 300 * time.Microsecond})
	time.Sleep(rand.N(scale))
	end := time.Now().Add(scales * scale)
	var mu sync.Mutex // guards allowed
	var allowed []operation
	var all sync.WaitGroup
	for i := range processes {
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		leases := lease.New(client.Backend(), lease.WithAge(age))
		t.Cleanup(func() { leases.Close() })
		death := end
		if f.die && i%3 == 0 {
			death = time.Now().Add(rand.N(scales * scale)) // what it holds is lost
		}
		limiter := testkit.NewRateLimit(leases)
		for range callers {
			all.Go(func() {
				for time.Now().Before(death) {
					op := operation{start: time.Now()}
					res, err := limiter.Hit(t.Context(), "k", scale, limit)
					if err != nil && !f.cut {
						t.Errorf("hit: %v", err)
						return
					}
					if op.end = time.Now(); err == nil && res.Allowed {
						mu.Lock()
						allowed = append(allowed, op)
						mu.Unlock()
					}
					time.Sleep(rand.N(4 * time.Millisecond))
				}
			})
		}
		if f.reset && i == 0 {
			all.Go(func() {
				for time.Now().Before(end) {
					time.Sleep(scale + rand.N(2*scale))
					if err := limiter.Reset(t.Context(), "k", scale); err != nil && !f.cut {
						t.Errorf("reset: %v", err)
					}
				}
			})
		}
	}
	if f.cut {
		all.Go(func() {
			for time.Now().Before(end) {
				time.Sleep(rand.N(scale / 2))
				srv.Disconnect()
			}
		})
	}
	all.Wait()
	windows := log.windowsOf(modelKey{"k", scale})
	slices.SortFunc(allowed, func(a, b operation) int { return cmp.Or(a.end.Compare(b.end), a.start.Compare(b.start)) })
	counts := make([]int, len(windows))
	for _, op := range allowed {
		fits := false
		for i, w := range windows {
			over := w.end
			if w.reset {
				over = over.Add(age) // blocks show a Reset by others within their age
			}
			if op.start.Before(over) && !op.end.Before(w.start) && counts[i] < limit {
				counts[i]++
				fits = true
				break
			}
		}
		require.True(t, fits, "the hit from %v to %v is over the limit: %v", op.start, op.end, fmt.Sprint(windows))
	}
	require.GreaterOrEqual(t, len(windows), scales-2)
	t.Logf("%d allowed, by windows: %v", len(allowed), counts)
	if !f.cut && !f.die && !f.reset {
		for _, n := range counts[1 : len(counts)-1] { // the first and the last may be shorter
			require.GreaterOrEqual(t, n, limit*95/100, "the limit is used")
		}
	}
}
