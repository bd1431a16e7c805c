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

// TestWhatTLSRefusesIsAnErrorThatNamesTheServer connects to what is not the server that was
// meant, or does not want the client. No request is ever executed, and nothing is left.
func TestWhatTLSRefusesIsAnErrorThatNamesTheServer(t *testing.T) {
	cert, roots := testkit.Certificate(t, time.Now().Add(time.Hour))
	other, _ := testkit.Certificate(t, time.Now().Add(time.Hour))
	expired, trusting := testkit.Certificate(t, time.Now().Add(-time.Hour))
	serves := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	mutual := serves(cert)
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, roots
	old := serves(cert)
	old.MaxVersion = tls.VersionTLS11

	for name, test := range map[string]struct {
		server *tls.Config // nil: one that does not speak TLS
		client *tls.Config
		why    func(error) bool
	}{
		"an unknown authority":     {serves(other), &tls.Config{RootCAs: roots}, as[x509.UnknownAuthorityError]},
		"the system's authorities": {serves(cert), &tls.Config{}, as[x509.UnknownAuthorityError]},
		"another name":             {serves(cert), &tls.Config{RootCAs: roots, ServerName: "elsewhere"}, as[x509.HostnameError]},
		"expired":                  {serves(expired), &tls.Config{RootCAs: trusting}, as[x509.CertificateInvalidError]},
		"an old version":           {old, &tls.Config{RootCAs: roots}, nil},
		"no client certificate":    {mutual, &tls.Config{RootCAs: roots}, as[*net.OpError]},
		"a client certificate of another authority": {
			mutual, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{other}}, as[*net.OpError],
		},
		"a server without TLS": {nil, &tls.Config{RootCAs: roots}, nil},
		"a client without TLS": {serves(cert), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			srv, err := mockserver.Start() // TLS is no request: a violation
			require.NoError(t, err)
			defer srv.Close()
			addr := srv.Addr()
			if test.server != nil {
				addr = testkit.TLSProxy(t, srv, test.server)
			}
			cfg := throttr.Config{Servers: []string{addr}, Dial: testkit.DialLoopback, TLS: test.client}
			_, err = throttr.Connect[uint16](t.Context(), cfg)
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.ErrorContains(t, err, addr)
			if test.why != nil {
				require.True(t, test.why(err), "%v", err)
			}
			_, err = throttr.ProbeValueSize(t.Context(), cfg, addr)
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.ErrorContains(t, err, addr)
			testkit.RequireNoGoroutines(t)
			require.Zero(t, srv.Requests(codec.OpInsert)+srv.Requests(codec.OpPurge))
		})
	}
}

// as reports whether err is, or wraps, an E.
func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func TestAClientShowsItsCertificate(t *testing.T) {
	cert, roots := testkit.Certificate(t, time.Now().Add(time.Hour))
	mine, clients := testkit.Certificate(t, time.Now().Add(time.Hour))
	srv := mockserver.RunT(t)
	addr := testkit.TLSProxy(t, srv, &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	})
	cfg := throttr.Config{
		Servers: []string{addr}, Dial: testkit.DialLoopback,
		TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{mine}},
	}
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	require.NoError(t, err)
	limiter := throttr.NewRateLimit(client.Backend())
	for i := range 5 {
		res, err := limiter.Hit(t.Context(), "k", time.Hour, 3)
		require.NoError(t, err)
		require.Equal(t, i < 3, res.Allowed)
	}
	n := 0
	for _, err := range client.List(t.Context()) { // on a connection of its own
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 1, n)
	sub, err := client.Subscribe(t.Context(), "c") // and so is this
	require.NoError(t, err)
	_, err = client.Publish(t.Context(), "c", []byte("hello"))
	require.NoError(t, err)
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, "hello", string(m.Payload))
	client.Close()
	testkit.RequireNoGoroutines(t)
}

// TestAHandshakeThatNeverEndsIsGivenUp connects to a listener that takes connections and
// says nothing.
func TestAHandshakeThatNeverEndsIsGivenUp(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	cfg := throttr.Config{
		Servers: []string{ln.Addr().String()}, TLS: &tls.Config{}, ConnectTimeout: 50 * time.Millisecond,
	}
	_, err = throttr.Connect[uint16](t.Context(), cfg)
	require.ErrorIs(t, err, throttr.ErrConnect)
	require.True(t, throttr.Timeout(err), "%v", err)
	require.ErrorContains(t, err, ln.Addr().String())
	testkit.RequireNoGoroutines(t)
}
