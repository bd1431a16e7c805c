package transport_test

import (
	"crypto/tls"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestClientOverTLS(t *testing.T) {
	const callers = 500
	cert, roots := testkit.Certificate(t, time.Now().Add(time.Hour))
	srv := mockserver.RunT(t)
	fill(t, srv, testkit.Connect[uint16](t, srv, throttr.Config{}), callers)
	addr := testkit.TLSProxy(t, srv, &tls.Config{Certificates: []tls.Certificate{cert}})
	cfg := throttr.Config{Servers: []string{addr}, Dial: testkit.DialLoopback, TLS: &tls.Config{RootCAs: roots}}
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	require.NoError(t, err)
	defer client.Close()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			if r := request(t.Context(), client, i); r.err != nil || !r.right {
				t.Errorf("%v %s: %v", r.op, r.key, r.err)
			}
		})
	}
	all.Wait()
	require.Empty(t, cfg.TLS.ServerName, "the caller's configuration is not changed")
}

func TestClientOverAUnixSocket(t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithAddr("unix", filepath.Join(t.TempDir(), "s")))
	cfg, err := throttr.ParseURL(srv.Addr())
	require.NoError(t, err)
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	require.NoError(t, err)
	defer client.Close()
	ok, err := client.Insert(t.Context(), "k", 5, testkit.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, srv.Restart(true))
	c, ok, err := client.Query(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 5, c.Quota)
}
