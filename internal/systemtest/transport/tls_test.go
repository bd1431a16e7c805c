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
	client := testkit.Client[uint16](t, throttr.Config{
		Servers: []string{addr}, TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{mine}},
	})
	require.Equal(t, 3, testkit.Hits(t, testkit.NewRateLimit(client.Backend()), 5, "k", time.Hour, 3))
	sub := testkit.Subscribe(t, client, "c") // on a connection of its own
	_, err := client.Publish(t.Context(), "c", []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, "hello", string(testkit.Next(t, sub).Payload))
	client.Close()
	testkit.RequireNoGoroutines(t)
}
