package transport_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// The server is not the one that the client trusts, or the server does not trust the client. The
// error names the server, no request is executed, and no goroutine is left.
func TestTLSHandshakeFailureNamesTheServer(t *testing.T) {
	end := time.Now().Add(time.Hour)
	cert, roots := testkit.Certificate(t, "localhost", end)
	other, _ := testkit.Certificate(t, "localhost", end)
	expired, past := testkit.Certificate(t, "localhost", time.Now().Add(-time.Hour))
	serving := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	mutual := serving(cert)
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, roots
	old := serving(cert)
	old.MaxVersion = tls.VersionTLS11

	for name, test := range map[string]struct {
		server *tls.Config // nil: a server without TLS
		client *tls.Config
		reason func(error) bool // nil: any
	}{
		"an unknown authority":     {serving(other), &tls.Config{RootCAs: roots}, as[x509.UnknownAuthorityError]},
		"the system's authorities": {serving(cert), &tls.Config{}, as[x509.UnknownAuthorityError]},
		"another name":             {serving(cert), &tls.Config{RootCAs: roots, ServerName: "elsewhere"}, as[x509.HostnameError]},
		"expired":                  {serving(expired), &tls.Config{RootCAs: past}, as[x509.CertificateInvalidError]},
		"an old version":           {old, &tls.Config{RootCAs: roots}, nil},
		"no client certificate":    {mutual, &tls.Config{RootCAs: roots}, as[*net.OpError]},
		"a client certificate of another authority": {
			mutual, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{other}}, as[*net.OpError],
		},
		"a server without TLS": {nil, &tls.Config{RootCAs: roots}, nil},
		"a client without TLS": {serving(cert), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			srv, err := mockserver.Start() // not RunT: a handshake is not a request, but a violation
			require.NoError(t, err)
			defer srv.Close()
			addr := srv.Addr()
			if test.server != nil {
				addr = testkit.TLS(t, srv.Addr(), test.server)
			}
			cfg := throttr.Config{Servers: []string{addr}, TLS: test.client}
			_, err = throttr.Connect[uint16](t.Context(), cfg)
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.ErrorContains(t, err, addr)
			if test.reason != nil {
				require.True(t, test.reason(err), "%v", err)
			}
			_, err = throttr.OpenServers(t.Context(), cfg)
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.ErrorContains(t, err, addr)
			testkit.RequireNoGoroutines(t)
			if test.server != nil { // without TLS, a handshake may read as any request
				require.Zero(t, srv.Requests(codec.OpInsert)+srv.Requests(codec.OpPurge))
			}
		})
	}
}

// as reports whether err is, or wraps, an E.
func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

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
