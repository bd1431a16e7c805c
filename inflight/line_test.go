package inflight_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// A Limiter on memory holds its places as one process, without a lease. See backendtest for what all stores list.
func TestPlacesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory(t)
		l := newLimiter(t, b)
		acquire(t, l, "a", exports, 2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Acquire(ctx, "a", exports, 1)
		claims(t, b, window.Claim{Key: "a", Name: "exports", Process: "p", Seq: 1, Lease: time.Minute, Held: 1, HeldMax: 3})
		claims(t, b, window.Claim{Key: "b", Process: "p", Seq: 1, Lease: time.Second, Held: 1, HeldMax: 3})
		synctest.Wait()
		var listed []window.ListedPlaces
		for p, err := range b.ListPlaces(t.Context(), "a") {
			require.NoError(t, err)
			listed = append(listed, p)
		}
		of := listed[0].ByProcess
		i := slices.IndexFunc(of, func(h window.Holder) bool { return strings.Contains(h.Process, ":") })
		require.Equal(t, window.Holder{Process: of[i].Process, Held: 2, Waiting: 1}, of[i])
		require.Equal(t, window.Holder{Process: "p", Held: 1, LeaseEnds: time.Minute}, of[1-i])
		require.Equal(t, []window.ListedPlaces{{Key: "a", Name: "exports", Used: 3, Waiting: 1, ByProcess: of}}, listed)
		for range b.ListPlaces(t.Context()) {
			l.Stats()
			break // the loop may end early, and call the backend
		}
		cancel()
		synctest.Wait()
		require.NoError(t, b.Close())
		for _, err := range b.ListPlaces(t.Context()) {
			require.ErrorIs(t, err, throttr.ErrClosed)
		}
	})
}

// claims makes a claim of a process that shares a backend in memory, such as by a server of the program's own.
func claims(t *testing.T, b window.Backend, c window.Claim) window.Places {
	t.Helper()
	places := make([]window.Places, 1)
	require.NoError(t, b.Exchange(t.Context(), []window.Claim{c}, places))
	require.NoError(t, places[0].Err)
	return places[0]
}

// Whoever waits behind a process that has crashed is served when that has lost its position, or its places.
func TestTheLineGoesOnBehindAProcessThatHasCrashed(t *testing.T) {
	limit := inflight.Limit{Name: "exports", Max: 2, Lease: time.Second}
	for name, test := range map[string]struct {
		claim window.Claim
		after time.Duration
	}{
		"waits": {window.Claim{Wants: []window.Want{{N: 2, Max: 2, Wait: true}}}, limit.Lease / 4},
		"holds": {window.Claim{Held: 1, HeldMax: 2}, limit.Lease},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newMemory(t)
				l := newLimiter(t, b)
				h := acquire(t, l, "k", limit, 1)
				test.claim.Key, test.claim.Name, test.claim.Process, test.claim.Seq, test.claim.Lease = "k", limit.Name, "crashed", 1, limit.Lease
				claims(t, b, test.claim)
				begun := time.Now()
				time.AfterFunc(10*time.Millisecond, h.Release)
				_, err := l.Acquire(t.Context(), "k", limit, 2)
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(begun), test.after)
				require.LessOrEqual(t, time.Since(begun), test.after+time.Second/2, "a poll")
			})
		})
	}
}

// A caller that waits keeps no timer when it is served, or has gone.
func TestALineThatIsServedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.WithClock(time.Now), memory.WithMaxKeys(1))
		defer b.Close()
		l := newLimiter(t, b)
		claim := window.Claim{Key: "k", Name: exports.Name, Process: "p", Seq: 1, Lease: exports.Lease, Held: 2, HeldMax: 2}
		claims(t, b, claim)
		ctx, cancel := context.WithTimeout(t.Context(), exports.Lease/2)
		defer cancel()
		_, err := l.Acquire(ctx, "k", exports, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, _, err = l.TryAcquire(t.Context(), "other", exports, 1)
		require.ErrorIs(t, err, throttr.ErrFull)
		time.Sleep(exports.Lease)
		acquire(t, l, "other", exports, 1)
	})
}

// A lower Max under the same name is a lower priority: who has it waits until others leave that much room.
func TestALowerMaxIsALowerPriority(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		batch, interactive := inflight.Limit{Max: 2}, inflight.Limit{Max: 4}
		one, two := newLimiter(t, b), newLimiter(t, b)
		first := acquire(t, one, "k", batch, 2)
		var mu sync.Mutex // guards order
		var order []string
		served := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(order)
		}
		wait := func(l *inflight.Limiter, name string, limit inflight.Limit) {
			go func() {
				h, err := l.Acquire(t.Context(), "k", limit, 1)
				require.NoError(t, err)
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				time.Sleep(time.Second)
				h.Release()
			}()
			synctest.Wait()
		}
		wait(one, "batch", batch)
		a, c := acquire(t, one, "k", interactive, 1), acquire(t, two, "k", interactive, 1) // past the one that waits
		denied(t, one, "k", interactive, 1)
		denied(t, two, "k", batch, 1)
		wait(two, "interactive", interactive)
		wait(two, "interactive", interactive)
		first.Release()
		synctest.Wait()
		require.Equal(t, []string{"interactive", "interactive"}, served())
		a.Release()
		c.Release()
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"interactive", "interactive", "batch"}, served())
	})
}
