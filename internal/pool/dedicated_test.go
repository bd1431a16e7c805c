package pool_test

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// dedicated returns a dedicated connection.
func (s subject) dedicated() *conn.Conn {
	s.t.Helper()
	c, err := s.Dedicated(s.t.Context())
	require.NoError(s.t, err)
	return c
}

// on makes a QUERY on a connection.
func (s subject) on(c *conn.Conn) error {
	cl := s.calls.Get()
	if err := conn.Add(cl, codec.Query{Key: []byte("k")}); err != nil {
		return err
	}
	if err := c.Enqueue(cl); err != nil {
		return err
	}
	_, _, err := cl.Wait(s.t.Context())
	return err
}

// A connection that fails with requests in flight must not deliver them later: it sends a reset.
func TestDedicatedConnectionsFailWithAReset(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ends := make(chan error, 3) // of the connections
	go func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				if err := testkit.Handshake(nc, 2); err != nil {
					t.Error(err)
				}
				_, err := io.Copy(io.Discard, nc)
				ends <- err
			}()
		}
	}()
	s := connect(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	}, pool.Options{MaxConns: 1})
	defer listener.Close()
	c := s.dedicated()
	c.Close(errGate)
	require.NoError(t, <-ends, "a connection without requests in flight ends in the ordinary way")
	c = s.dedicated()
	cl := s.calls.Get()
	require.NoError(t, conn.Add(cl, codec.Query{Key: []byte("k")}))
	require.NoError(t, c.Enqueue(cl))
	c.Cut(errGate)
	_, _, err = cl.Wait(t.Context())
	require.ErrorIs(t, err, errGate)
	require.ErrorContains(t, <-ends, "reset")
	s.Close()
	require.NoError(t, <-ends, "and so do shared connections")
}

func TestDedicatedConnectionsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := connect(t, to(srv), pool.Options{MaxConns: 1, MaxConnAge: 10 * time.Minute, MaxConnIdle: 5 * time.Minute})
		first, second := s.dedicated(), s.dedicated()
		require.NotSame(t, first, second)
		require.Equal(t, 1, s.Stats().Conns)
		require.Equal(t, 3, srv.Conns())
		srv.Inject(mockserver.Fault{Delay: time.Second})
		wait := s.start(20, func(int) { s.query(t.Context(), "k") })
		synctest.Wait()
		require.Zero(t, first.Load())
		require.Zero(t, second.Load())
		wait()
		for range 9 { // the first is in use, and so it becomes old
			require.NoError(t, s.on(first))
			time.Sleep(time.Minute)
		}
		require.True(t, first.Open())
		require.False(t, second.Open())
		time.Sleep(2 * time.Minute)
		require.ErrorIs(t, s.on(first), conn.ErrGone)
		<-first.Done()
	})
}
