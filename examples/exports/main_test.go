package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
)

func TestExportsOfACustomerRunOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithClock(time.Now))
		defer store.Close()
		var out bytes.Buffer
		start := time.Now()
		require.NoError(t, run(t.Context(), store, &out))
		require.Equal(t, "4 archives of acme, 1 of smith\n", out.String())
		require.Equal(t, 400*time.Millisecond, time.Since(start))
	})
}

func TestAnExportWithoutItsPlaceUploadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithClock(time.Now))
		defer store.Close()
		limiter := inflight.New(store)
		w := &worker{limiter: limiter, archive: archive{tokens: map[string]uint64{}}}
		time.AfterFunc(50*time.Millisecond, func() { limiter.Close() })
		require.ErrorIs(t, w.export(t.Context(), "acme"), context.Canceled)
		require.Empty(t, w.archive.count)
	})
}

func TestTheArchiveRefusesWhoeverWasOvertaken(t *testing.T) {
	a := archive{tokens: map[string]uint64{}}
	require.NoError(t, a.upload("acme", "", 7))
	require.EqualError(t, a.upload("acme", "", 6), "the export of acme was overtaken")
	require.Equal(t, 1, a.count["acme"])
}
