package transport_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestClientPresentsItsCertificate(t *testing.T) {
	end := time.Now().Add(time.Hour)
	cert, roots := testkit.Certificate(t, "localhost", end)
	mine, clients := testkit.Certificate(t, "throttr", end)
	srv := mockserver.RunT(t)
	addr := testkit.TLS(t, srv.Addr(), &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	})
	cfg := throttr.Config{
		Servers: []string{addr},
		TLS:     &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{mine}},
	}
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	require.NoError(t, err)
	defer client.Close()
	limiter := testkit.NewRateLimit(client.Backend())
	for i := range 5 {
		res, err := limiter.Hit(t.Context(), "k", time.Hour, 3)
		require.NoError(t, err)
		require.Equal(t, i < 3, res.Allowed)
	}
	// LIST and subscriptions use connections of their own.
	listed, err := testkit.Collect(t, client.List(t.Context()))
	require.NoError(t, err)
	require.NotEmpty(t, listed)
	sub := testkit.Subscribe(t, client, "c")
	_, err = client.Publish(t.Context(), "c", []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, "hello", string(testkit.Next(t, sub).Payload))
	client.Close()
	testkit.RequireNoGoroutines(t)
}
