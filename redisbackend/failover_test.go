//go:build unix

package redisbackend_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// Redis replicates asynchronously: a replica that takes over may have missed the last hits. The test hits windows of an
// hour until each of them is full. After a third of the hits, a primary of the cluster fails. The backends share the
// windows; each has its own client. The test fails if more hits were allowed beyond the limits than a replica can have
// missed, or if hits failed long after the failover.
func TestFailoverAllowsFewHitsMore(t *testing.T) {
	c := testkit.StartCluster(t, 3, 3)
	backends := []window.Backend{redisbackend.New(onCluster(t, c)), redisbackend.New(onCluster(t, c))}
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
	c.Primaries[0].Kill()
	c.Replicas[0].Must(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	all.Wait()
	over := int64(0)
	for i := range allowed {
		n := allowed[i].Load()
		expect(t, n > limit/2, "only %d hits of window %d were allowed", n, i)
		over += max(0, n-limit)
	}
	until := time.Duration(lastError.Load()) - failed
	t.Logf("%d hits were allowed beyond the limits; %d failed, until %v after the failure", over, errors.Load(), until)
	expect(t, over <= keys*limit/100, "%d hits were allowed beyond the limits", over)
	expect(t, until <= 45*time.Second, "hits failed until %v after the primary has failed", until)
}

// Callers hit and take while the slot of their keys moves to another node, and back. Nothing is forgotten,
// nothing is left behind, and no call fails. Two keys are in one slot, and move one after the other.
func TestSlotsThatMoveKeepTheirCounts(t *testing.T) {
	c := testkit.StartCluster(t, 2, 2)
	const limit, key, other = 60, "k", "19945"
	slot := c.Primaries[0].Must(t, "CLUSTER", "KEYSLOT", "k:"+key)
	expect(t, slot == c.Primaries[0].Must(t, "CLUSTER", "KEYSLOT", "k:"+other), "the keys are in two slots")
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			b := redisbackend.New(onCluster(t, c))
			from, to := c.Primaries[0], c.Primaries[1]
			if _, err := from.Do("HLEN", "{k:k}"); err != nil { // MOVED
				from, to = to, from
			}
			var granted atomic.Int64
			call := func(i int) {
				scale := time.Duration(20+i%2) * 100 * time.Hour
				var ok bool
				var err error
				if i%3 == 0 {
					limits := []window.Take{limitOf(a, scale, limit).For(key, 1), limitOf(a, scale, 1000).For(other, 1)}
					ok, err = b.TakeAll(t.Context(), limits, make([]window.Window, len(limits)))
				} else {
					var w window.Window
					w, err = b.Hit(t.Context(), key, limitOf(a, scale, limit), 1)
					ok = !w.Refused && (a.Rolling() || w.Count <= limit)
				}
				if err != nil {
					t.Error(err)
				} else if ok {
					granted.Add(1)
				}
			}
			for i := range 20 {
				call(i)
			}
			expect(t, granted.Load() == 20, "%d were granted", granted.Load())
			var callers sync.WaitGroup
			var end atomic.Bool
			for g := range 4 {
				callers.Go(func() {
					for i := g; !end.Load(); i++ {
						call(i)
						time.Sleep(time.Millisecond)
					}
				})
			}
			for range 2 {
				move(t, from, to, slot)
				from, to = to, from
			}
			for i := range 4 * limit {
				call(i)
			}
			end.Store(true)
			callers.Wait()
			expect(t, granted.Load() == 2*limit, "%d were granted, want %d", granted.Load(), 2*limit)
			for _, key := range []string{key, other} {
				noError(t, errorOf(b.Delete(t.Context(), key)))
			}
		})
	}
}

// move moves a slot, as redis-cli does, but takes its time.
func move(t *testing.T, from, to *testkit.Redis, slot string) {
	t.Helper()
	me, you := from.Must(t, "CLUSTER", "MYID"), to.Must(t, "CLUSTER", "MYID")
	to.Must(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", me)
	from.Must(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", you)
	time.Sleep(20 * time.Millisecond)
	for {
		names := from.Must(t, "CLUSTER", "GETKEYSINSLOT", slot, "100")
		if names == "" {
			break
		}
		for _, name := range strings.Split(names, "\n") {
			from.Must(t, "MIGRATE", "127.0.0.1", to.Port, name, "0", "60000")
			time.Sleep(20 * time.Millisecond)
		}
	}
	to.Must(t, "CLUSTER", "SETSLOT", slot, "NODE", you)
	from.Must(t, "CLUSTER", "SETSLOT", slot, "NODE", you)
	expect(t, from.Must(t, "CLUSTER", "COUNTKEYSINSLOT", slot) == "0", "keys are left")
}
