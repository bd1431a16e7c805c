package throttr_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// The lookup of a window fails here, which is a QUERY, although the call is a hit.
func TestErrorOfABackendNamesTheCallAndNoSingleRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		b := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxRetries: -1})).Backend()
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Disconnect: true})
		_, err := b.Hit(t.Context(), "k", throttr.Limit{Max: 5, Scale: time.Minute, Algorithm: throttr.FixedWindow}, 1)
		var failed *throttr.RequestError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "hit", failed.Call)
		require.Equal(t, "k", failed.Key)
		require.Zero(t, failed.Op)
	})
}
