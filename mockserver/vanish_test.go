package mockserver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

func TestHalfOpenConnectionLosesAllBytes(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Delay: time.Second})
		require.Empty(t, w.ask(purge("late")))
		srv.HalfOpen()
		require.Empty(t, w.ask(insert("k", 5, 10, codec.Seconds)))
		srv.Publish("*", nil)
		time.Sleep(2 * time.Second)
		require.Empty(t, w.received())
		require.False(t, w.closed())
		require.Empty(t, srv.Keys(), "nothing is executed")
		require.Equal(t, threeResponses[:14], connect(t, srv).ask(three[0], three[1]), "the next connection works")
		srv.Disconnect()
		require.True(t, w.closed())
	}, virtual)
}

func TestRecompileChangesTheValueSize(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, threeResponses, w.askThree())
		require.Error(t, srv.Recompile(3))
		require.Equal(t, []string{"k"}, srv.Keys())
		require.NoError(t, srv.Recompile(1))
		require.True(t, w.closed())
		require.Empty(t, srv.Keys())
		w = connect(t, srv)
		w.send([]byte{1, 5, 4, 10, 1, 'k', 2, 1, 'k'})
		require.Equal(t, "01"+"01050409", w.received())
	}, virtual)
}

func TestOverflowDropsResponses(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second, Times: 1})
		w := connect(t, srv)
		require.Empty(t, w.ask(query("k")))
		for range 1024 {
			srv.Publish("c", nil)
		}
		require.Empty(t, w.ask(insert("k", 5, 10, codec.Seconds)))
		time.Sleep(time.Second)
		require.Equal(t, "00"+strings.Repeat("1901000063", 1023), w.received())
		require.Equal(t, []string{"k"}, srv.Keys(), "the request is executed")
		require.Equal(t, "00", w.ask(purge("missing")))
		require.Empty(t, srv.Violations())
	}, virtual, with(mockserver.Overflow))
}
