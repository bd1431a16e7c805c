package inflight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
)

// However a backend in memory is wrapped, its places are those of all who use it.
func TestWrappedBackendsHavePlaces(t *testing.T) {
	opened, err := throttr.Open(t.Context(), "memory://")
	require.NoError(t, err)
	store := memory.New()
	for name, b := range map[string]throttr.Backend{
		"Open": opened, "leases": lease.New(store), "a struct": struct{ throttr.Backend }{store},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := inflight.New(b), inflight.New(b)
			defer one.Close()
			limit := inflight.Limit{Name: name, Max: 1, Lease: 5 * time.Second}
			place, ok, err := one.TryAcquire(t.Context(), "k", limit, 1)
			require.NoError(t, err)
			require.True(t, ok)
			_, ok, err = two.TryAcquire(t.Context(), "k", limit, 1)
			require.NoError(t, err)
			require.False(t, ok)
			place.Release()
			require.NoError(t, two.Close())
		})
	}
	require.NoError(t, opened.Close())
	require.NoError(t, store.Close())
}
