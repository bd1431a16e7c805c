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

func TestAClientWorksOverTLS(t *testing.T) {
	cert, roots := testkit.Certificate(t, time.Now().Add(time.Hour))
	srv := mockserver.RunT(t)
	prepared := testkit.Connect[uint16](t, srv, throttr.Config{})
	const callers = 500
	prepare(t, srv, prepared, callers)
	addr := testkit.TLSProxy(t, srv, &tls.Config{Certificates: []tls.Certificate{cert}})
	cfg := throttr.Config{Servers: []string{addr}, Dial: testkit.DialLoopback, TLS: &tls.Config{RootCAs: roots}}
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	require.NoError(t, err)
	defer client.Close()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			if a := ask(t.Context(), client, i); a.err != nil || !a.right {
				t.Errorf("%v %s: %v", a.op, a.key, a.err)
			}
		})
	}
	all.Wait()
	require.Empty(t, cfg.TLS.ServerName, "the caller's Config is left as it is")
}

func TestAClientWorksOverAUnixSocket(t *testing.T) {
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
