package mockserver_test

import (
	"encoding"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

// cost returns how long the response to a request takes.
func (w *wire) cost(request encoding.BinaryAppender) time.Duration {
	start := time.Now()
	w.send(frames(w.t, request))
	<-w.got
	took := time.Since(start)
	w.received() // the rest of a long one
	return took
}

func TestServiceTimeDependsOnWhatTheServerHasDone(t *testing.T) {
	const one, fresh = 10 * time.Microsecond, 13 * time.Microsecond
	again := insert("k", 1, 9, codec.Hours)
	set := uint16.Set{Key: []byte("b"), Value: []byte("v"), TTL: again.TTL}
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, fresh, w.cost(again))
		slower := w.cost(again)
		require.Equal(t, fresh+32*time.Microsecond/20_000, slower, "it fails, and takes as long as one that does not")
		require.Equal(t, slower, w.cost(again), "what fails makes no record")
		require.Equal(t, slower, w.cost(set))
		require.Greater(t, w.cost(set), slower)
		require.Equal(t, one, w.cost(query("k")))

		for i := range 998 {
			srv.Set(string(rune(i+0x100)), 1, time.Hour)
		}
		time.Sleep(time.Minute)
		require.Equal(t, one+350*time.Microsecond, w.cost(query("no")), "once a minute it looks through its records")
		require.Equal(t, one, w.cost(query("no")))
		require.Equal(t, one+350*time.Microsecond, w.cost(codec.Info{}))
		require.Equal(t, one+5*time.Millisecond, w.cost(codec.List{}))

		nc, err := srv.Dial(t.Context())
		require.NoError(t, err)
		_, err = nc.Write(flood(t, 500))
		require.NoError(t, err)
		time.Sleep(time.Second)
		nc.Close()
		synctest.Wait()
		require.Equal(t, 500, srv.Leaked())
		require.Equal(t, one+850*time.Nanosecond, w.cost(query("no")), "unread responses make requests slower")

		require.NoError(t, srv.Restart(true))
		require.Equal(t, fresh, connect(t, srv).cost(again), "a restarted server is new")
	}, mockserver.WithRealServiceTime())
	_, err := mockserver.Start(mockserver.WithServiceTime(time.Millisecond + 1))
	require.ErrorContains(t, err, "service time is 0 to 1ms, not 1.000001ms")
}
