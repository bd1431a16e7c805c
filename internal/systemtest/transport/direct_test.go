package transport_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// sluice is a proxy before a mock server. While it is shut, it reads nothing, so that the
// sockets before it fill up.
type sluice struct {
	addr string
	shut sync.RWMutex
}

func newSluice(t *testing.T, srv *mockserver.Server) *sluice {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &sluice{addr: l.Addr().String()}
	testkit.Relay(t, l, srv, func(client net.Conn) io.Reader {
		client.(*net.TCPConn).SetReadBuffer(64 << 10)
		return g.guard(client)
	})
	return g
}

// guard returns a reader of r that waits while the sluice is shut.
func (g *sluice) guard(r io.Reader) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		g.shut.RLock()
		defer g.shut.RUnlock()
		return n, err
	})
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// smallSockets has cfg's connections take few bytes that the server has not read.
func smallSockets(cfg throttr.Config) throttr.Config {
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			err = nc.(*net.TCPConn).SetWriteBuffer(64 << 10)
		}
		return nc, err
	}
	return cfg
}

func TestNoCallerIsHeldUpByAServerThatReadsNothing(t *testing.T) {
	const callers = 300
	g := newSluice(t, mockserver.RunT(t))
	client, err := throttr.Connect[uint16](t.Context(), smallSockets(throttr.Config{
		Servers: []string{g.addr}, MaxConns: 1, StallTimeout: time.Minute,
	}))
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	value := make([]byte, 7<<10) // two megabytes in all, much more than the sockets take

	g.shut.Lock()
	impatient, cancel := context.WithCancel(t.Context())
	var left, answered sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		left.Go(func() { _, errs[i] = client.Set(impatient, fmt.Sprint("impatient", i), value, testkit.Minute) })
	}
	oks := make([]bool, callers)
	for i := range callers {
		answered.Go(func() { oks[i], _ = client.Set(t.Context(), fmt.Sprint("patient", i), value[i:], testkit.Minute) })
	}
	require.Eventually(t, func() bool { s := testkit.ServerStats(client); return s.InFlight+s.Waiting == 2*callers }, 10*time.Second, time.Millisecond)
	cancel()
	left.Wait() // while the sluice is shut
	sent := 0
	for _, err := range errs {
		var re *throttr.RequestError
		require.ErrorAs(t, err, &re)
		require.ErrorIs(t, err, context.Canceled)
		if re.Sent {
			sent++
		}
	}
	require.Less(t, sent, callers, "the sockets took everything")

	g.shut.Unlock()
	answered.Wait()
	for i, ok := range oks {
		require.True(t, ok)
		b, found, err := client.Get(t.Context(), fmt.Sprint("patient", i))
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, value[i:], b.Value)
	}
	require.Zero(t, testkit.ServerStats(client).InFlight)
	require.NoError(t, client.Close())
}
