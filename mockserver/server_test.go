package mockserver_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
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
	for _, n := range []int{-1, 0, 3, 16} {
		_, err := mockserver.Start(mockserver.WithValueSize(n))
		require.ErrorContains(t, err, "value size")
	}
	_, err := mockserver.Start(mockserver.WithHazard(99, true))
	require.ErrorContains(t, err, "Hazard(99)")
	_, err = mockserver.Start(mockserver.WithAddr("udp", ""))
	require.ErrorContains(t, err, "network")
	_, err = mockserver.Start(mockserver.WithAddr("unix", filepath.Join(t.TempDir(), "no", "such", "folder")))
	require.Error(t, err)
}

func TestConnectionInMemoryHasDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		require.Equal(t, "memory:9000", srv.Addr())
		conn, err := srv.Dial(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Hour)))
		_, err = conn.Read(make([]byte, 1))
		require.ErrorContains(t, err, "timeout")

		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = srv.Dial(over)
		require.ErrorIs(t, err, context.Canceled)
	})
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

// Requests that come in one write are executed without others in between.
func TestRequestsOfConcurrentClientsAreAllExecuted(t *testing.T) {
	const clients, rounds, pipelined = 8, 50, 20
	var order []int // of the connections of requests
	srv := mockserver.RunT(t, mockserver.WithObserver(func(e mockserver.Exec) { order = append(order, e.Conn) }))
	srv.Set("k", 0, time.Hour)
	frame := strings.Repeat(string(frames(t, increase("k", 1))), pipelined)
	var wg sync.WaitGroup
	for range clients {
		conn, err := srv.Dial(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		wg.Go(func() {
			buf := make([]byte, pipelined)
			for range rounds {
				_, err := io.WriteString(conn, frame)
				if err == nil {
					_, err = io.ReadFull(conn, buf)
				}
				if err != nil || strings.Trim(string(buf), "\x01") != "" {
					t.Errorf("responses % x, %v", buf, err)
					return
				}
				srv.Counter("k")
				srv.Keys()
				srv.Conns()
			}
		})
	}
	wg.Wait()
	quota, ok := srv.Counter("k")
	require.True(t, ok)
	require.Equal(t, uint64(clients*rounds*pipelined), quota)
	require.Equal(t, clients*rounds*pipelined, srv.Requests(codec.OpUpdate))
	require.Len(t, order, clients*rounds*pipelined)
	for i := range order {
		require.Equal(t, order[i-i%pipelined], order[i], "request %d", i)
	}
}

var _ mockserver.TB = (*testing.T)(nil)
