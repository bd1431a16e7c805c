package redisbackend_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

// requireFewMore hits windows of an hour until each of them is full. After a third of the hits, it calls fail, which
// makes a primary of the cluster fail. The backends share the windows; each has its own client. The test fails if
// more hits were allowed beyond the limits than a replica can have missed, or if hits failed long after the failover.
func requireFewMore(t *testing.T, fail func(), backends ...window.Backend) {
	t.Helper()
	const keys, limit, callers, hits = 300, 200, 32, 300 * 300
	l := window.Limit{Max: limit, Scale: time.Hour, Algorithm: window.FixedWindow}
	var allowed [keys]atomic.Int64
	var made, errors, lastError atomic.Int64
	begun, failing := time.Now(), make(chan struct{})
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := made.Add(1); n <= hits && t.Context().Err() == nil; n = made.Add(1) {
				if n == hits/3 {
					close(failing)
				}
				k := n / 16 % keys // callers at one time hit few windows, and so share entries of requests
				w, err := backends[i%len(backends)].Hit(t.Context(), fmt.Sprint("user:", k), l, 1)
				for ; err != nil && time.Since(begun) < 2*patience; w, err = backends[i%len(backends)].Hit(t.Context(), fmt.Sprint("user:", k), l, 1) {
					errors.Add(1)
					lastError.Store(int64(time.Since(begun)))
					time.Sleep(10 * time.Millisecond)
				}
				if err == nil && w.Count <= limit {
					allowed[k].Add(1)
				}
			}
		})
	}
	<-failing
	failed := time.Since(begun)
	fail()
	all.Wait()
	over, most := int64(0), int64(0)
	for i := range allowed {
		n := allowed[i].Load()
		expect(t, n > limit/2, "only %d hits of window %d were allowed", n, i)
		over += max(0, n-limit)
		most = max(most, n-limit)
	}
	until := time.Duration(lastError.Load()) - failed
	t.Logf("%d hits were allowed beyond the limits, up to %d of one window; %d hits failed, until %v after the failure", over, most, errors.Load(), until)
	expect(t, over <= keys*limit/100, "%d hits were allowed beyond the limits", over)
	expect(t, until <= 45*time.Second, "hits failed until %v after the primary has failed", until)
}
