package mockserver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

func TestNothingExpiresOnAParkedServer(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		w.ask(insert("", 80, 100, codec.Hours), insert("k", 1, 1, codec.Seconds))
		require.Equal(t, "01", w.ask(patchTTL("", 100)), "parked")
		w.ask(insert("l", 1, 1, codec.Minutes))
		srv.Advance(99 * time.Hour)
		require.Equal(t, "01"+"0100"+"040000", w.ask(query("k")), "live, with a TTL of 0")
		left, ok := srv.TTL("k")
		require.True(t, ok)
		require.Zero(t, left)
		require.Zero(t, srv.Expired())

		srv.Advance(time.Hour)
		require.Equal(t, "000000", w.ask(query(""), query("k"), query("l")))
		require.Equal(t, 3, srv.Expired(), "with the record that parked it")

		srv.Advance(10 * time.Second) // the grace
		w.ask(insert("", 80, 100, codec.Hours), patchTTL("", 100), insert("k", 1, 1, codec.Seconds))
		srv.Advance(2 * time.Second)
		require.Equal(t, "01", w.ask(purge("")))
		require.Equal(t, 4, srv.Expired(), "at once when it is not parked any more")
	}, virtual)
}

func TestResponsesToOneReadAreReversed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, "01"+"0100"+"050000"+"00"+"01", w.ask(insert("k", 1, 1, codec.Minutes), query("l"), query("k")))
		require.Equal(t, "00", w.ask(query("l")), "one alone is as ever")
	}, with(mockserver.Reorder))
}
