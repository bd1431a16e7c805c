package transport_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestReadsAreRepeatedMaxRetriesTimes(t *testing.T) {
	for field, sent := range map[int]int{-1: 1, 0: 3, 1: 2, 5: 6} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxRetries: field}))
			srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Disconnect: true})
			_, _, err := client.Query(t.Context(), "k")
			require.ErrorIs(t, err, throttr.ErrConnLost)
			require.False(t, testkit.SafeToRetry(err))
			require.Equal(t, sent, srv.Requests(codec.OpQuery)-int(testkit.ServerStats(client).Dials), "besides those of the probes")
			require.EqualValues(t, sent-1, testkit.ServerStats(client).Retries)
		})
	}
}

func TestCallWithEndedContextSendsNothing(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client.Insert(ctx, "k", 1, testkit.Minute)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, testkit.SafeToRetry(err))
	var b throttr.Batch[uint16]
	r := b.Purge("k")
	require.ErrorIs(t, client.Do(ctx, &b), context.Canceled)
	_, err = r.OK()
	require.True(t, testkit.SafeToRetry(err))
	_, _, err = client.Query(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, 1, srv.Requests(codec.OpInsert), "of the probe")
	require.Equal(t, 4, srv.Requests(codec.OpPurge), "of the probe")
}
