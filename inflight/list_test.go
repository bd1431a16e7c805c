package inflight_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/window"
)

// places returns what a backend lists, by key and name.
func places(t *testing.T, ctx context.Context, b window.Backend, keys ...string) (all map[string]window.ListedPlaces) {
	t.Helper()
	all = map[string]window.ListedPlaces{}
	for p, err := range b.ListPlaces(ctx, keys...) {
		require.NoError(t, err)
		all[p.Key+"/"+p.Name] = p
	}
	return all
}

func TestPlacesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory(t)
		l := newLimiter(t, b)
		require.Empty(t, places(t, t.Context(), b))
		acquire(t, l, "a", exports, 2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Acquire(ctx, "a", exports, 1)
		synctest.Wait()
		want := window.Want{N: 1, Max: 3, Wait: true}
		claims(t, b, window.Claim{Key: "a", Name: "exports", Process: "p", Seq: 1, Lease: time.Minute, Held: 1, HeldMax: 3, Wants: []window.Want{want, want}})
		claims(t, b, window.Claim{Key: "a", Name: "exports", Process: "o", Seq: 1, Lease: time.Second, Held: 1, HeldMax: 3})
		claims(t, b, window.Claim{Key: "b", Process: "p", Seq: 1, Lease: time.Second, Held: 1, HeldMax: 3})
		time.Sleep(time.Second / 2)
		a := window.ListedPlaces{Key: "a", Name: "exports", Used: 4, Waiting: 3, ByProcess: []window.Holder{
			{Process: "o", Held: 1, LeaseEnds: time.Second / 2},
			{Process: "p", Held: 1, Waiting: 2, LeaseEnds: time.Minute - time.Second/2},
			{Held: 2, Waiting: 1}, // of l, without a lease
		}}
		other := window.ListedPlaces{Key: "b", Used: 1, ByProcess: []window.Holder{{Process: "p", Held: 1, LeaseEnds: time.Second / 2}}}
		listed := places(t, t.Context(), b)
		of := listed["a/exports"].ByProcess
		require.Len(t, of, 3)
		require.Contains(t, of[2].Process, ":")
		of[2].Process = ""
		require.Equal(t, map[string]window.ListedPlaces{"a/exports": a, "b/": other}, listed)
		require.Equal(t, map[string]window.ListedPlaces{"b/": other}, places(t, t.Context(), b, "b", "c"))
		for range b.ListPlaces(t.Context()) {
			break // the loop may end early, and call the backend
		}
		time.Sleep(time.Second) // leases are over
		require.EqualValues(t, 3, places(t, t.Context(), b)["a/exports"].Used)
		require.NotContains(t, places(t, t.Context(), b), "b/")

		ended, end := context.WithCancel(t.Context())
		end()
		for _, err := range b.ListPlaces(ended) {
			require.ErrorIs(t, err, context.Canceled)
		}
		l.Close()
		require.NoError(t, b.Close())
		for _, err := range b.ListPlaces(t.Context()) {
			require.ErrorIs(t, err, throttr.ErrClosed)
		}
	})
}
