package mockserver_test

import (
	"encoding"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/mockserver"
)

// dialReal connects over the socket that the server listens on.
func dialReal(t testing.TB, srv *mockserver.Server) net.Conn {
	t.Helper()
	addr, err := dial.ParseAddress(srv.Addr())
	require.NoError(t, err)
	conn, err := net.Dial(addr.Network, addr.Address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestStartRejectsUnknownOptions(t *testing.T) {
	require.PanicsWithValue(t, "mockserver: Start: option 2 is nil", func() { mockserver.Start(virtual, nil) })
	for _, c := range []struct {
		option mockserver.Option
		text   string
	}{
		{mockserver.WithValueSize(-1), "value size"}, {mockserver.WithValueSize(0), "value size"},
		{mockserver.WithValueSize(3), "value size"}, {mockserver.WithValueSize(16), "value size"},
		{mockserver.WithHazard(99, true), "Hazard(99)"}, {mockserver.WithAddr("udp", ""), "network"},
		{mockserver.WithAddr("unix", filepath.Join(t.TempDir(), "no", "such", "folder")), "no"},
		{mockserver.WithServiceTime(time.Millisecond + 1), "service time is 0 to 1ms, not 1.000001ms"},
	} {
		_, err := mockserver.Start(c.option)
		require.ErrorContains(t, err, c.text)
	}
}

func TestCloseEndsAllGoroutines(t *testing.T) {
	running := func() int {
		buf := make([]byte, 1<<20)
		return strings.Count(string(buf[:runtime.Stack(buf, true)]), "mockserver.(*")
	}
	require.Eventually(t, func() bool { return running() == 0 }, 10*time.Second, time.Millisecond)
	// Unlike a port, a path is not taken by another process meanwhile.
	srv, err := mockserver.Start(mockserver.WithAddr("unix", filepath.Join(t.TempDir(), "s")))
	require.NoError(t, err)
	srv.Inject(mockserver.Fault{Delay: time.Hour})
	for range 5 {
		_, err := dialReal(t, srv).Write(frames(t, query("k")))
		require.NoError(t, err)
	}
	conn, err := srv.Dial(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.Eventually(t, func() bool { return srv.Requests(codec.OpQuery) == 5 }, 10*time.Second, time.Millisecond)
	require.NotZero(t, running())

	require.NoError(t, srv.Close())
	require.NoError(t, srv.Close())
	require.Zero(t, srv.Conns())
	// A goroutine calls wg.Done a moment before it ends.
	require.Eventually(t, func() bool { return running() == 0 }, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, srv.Restart(true), net.ErrClosed)
	_, err = srv.Dial(t.Context())
	require.ErrorIs(t, err, mockserver.ErrRefused)
	_, err = net.Dial("unix", strings.TrimPrefix(srv.Addr(), "unix://"))
	require.Error(t, err)
	require.Equal(t, 5, srv.Requests(codec.OpQuery), "the counts can still be read")
}

var _ mockserver.TB = (*testing.T)(nil)

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

		nc := sending(t, srv, 500)
		time.Sleep(time.Second)
		nc.Close()
		synctest.Wait()
		require.Equal(t, 500, srv.Leaked())
		require.Equal(t, one+850*time.Nanosecond, w.cost(query("no")), "unread responses make requests slower")

		require.NoError(t, srv.Restart(true))
		require.Equal(t, fresh, connect(t, srv).cost(again), "a restarted server is new")
	}, mockserver.WithRealServiceTime())
}
