package mockserver_test

import (
	"net"
	"path/filepath"
	"runtime"
	"strings"
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
