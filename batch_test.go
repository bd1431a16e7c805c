package throttr_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

// home returns the address of the server that has a counter.
func home(servers testkit.Servers, key string) string {
	for _, srv := range servers {
		if _, ok := srv.Counter(key); ok {
			return srv.Addr()
		}
	}
	return ""
}

func TestBatchReachesTheServersOfItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 300
		servers := testkit.Several(t, 3)
		client := testkit.Client[uint16](t, servers.Over(throttr.Config{MaxInFlight: 30}))
		var b throttr.Batch[uint16]
		var inserts []throttr.Reply[uint16]
		var queries []throttr.CounterReply[uint16]
		for i := range keys {
			key := fmt.Sprint("user:", i)
			inserts = append(inserts, b.Insert(key, uint16(i), testkit.Minute))
			queries = append(queries, b.Query(key))
		}
		require.Equal(t, 2*keys, b.Len())
		require.NoError(t, client.Do(t.Context(), &b))
		homes := map[string]int{}
		for i := range keys {
			ok, err := inserts[i].OK()
			require.NoError(t, err)
			require.True(t, ok)
			counter, ok, err := queries[i].Counter()
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, i, counter.Quota)
			homes[home(servers, fmt.Sprint("user:", i))]++
		}
		require.Len(t, homes, 3)
		for i, s := range client.Stats().Servers {
			require.Equal(t, servers[i].Addr(), s.Server)
			require.EqualValues(t, 1+2*homes[s.Server], s.Answered, "the client has made one request itself")
		}
	})
}
