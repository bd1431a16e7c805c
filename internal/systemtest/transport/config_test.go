package transport_test

import (
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
			srv, client := testkit.Start[uint16](t, throttr.Config{MaxRetries: field})
			srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Disconnect: true})
			_, _, err := client.Query(t.Context(), "k")
			require.ErrorIs(t, err, throttr.ErrConnLost)
			require.False(t, testkit.SafeToRetry(err))
			require.Equal(t, sent, srv.Requests(codec.OpQuery)-int(testkit.ServerStats(client).Dials), "besides those of the probes")
			require.EqualValues(t, sent-1, testkit.ServerStats(client).Retries)
		})
	}
}
