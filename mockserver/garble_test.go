package mockserver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

func TestGarbledListHasEntriesThatNeverExisted(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		list := func() (keys []string, err error) {
			t.Helper()
			res, _, err := codec.DecodeListResponse[uint16.Value](fromHex(t, w.ask(codec.List{})))
			for e := range res.All() {
				keys = append(keys, string(e.Key))
			}
			return keys, err
		}
		for i := range 5 {
			srv.Set(fmt.Sprint("user:", i), 1, time.Hour)
		}
		keys, err := list()
		require.NoError(t, err)
		require.Len(t, keys, 5)

		require.Equal(t, "0101", w.ask(purge("user:3"), purge("user:4")))
		for range 3 {
			keys, err = list()
			require.NoError(t, err)
			require.Len(t, keys, 5)
			require.ElementsMatch(t, []string{"user:0", "user:1", "user:2"}, keys[:3])
			for _, key := range keys[3:] {
				require.NotContains(t, key, "user")
				require.Equal(t, "00", w.ask(query(key)))
			}
		}
		_, err = list()
		require.ErrorIs(t, err, codec.ErrMalformed)

		stats, _, err := codec.DecodeStatsResponse(fromHex(t, w.ask(codec.Stats{})))
		require.NoError(t, err)
		require.Len(t, stats.Fragments[0], 5)

		srv.Advance(time.Second)
		for range 5 {
			keys, err = list()
			require.NoError(t, err)
			require.Len(t, keys, 3)
		}
	}, virtual, with(mockserver.GarbledList))
}
