package throttr_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/mockserver"
)

// certificate makes one for "localhost" that signs itself and is good for an hour, and the
// pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	return certificateUntil(t, time.Now().Add(time.Hour))
}

func certificateUntil(t *testing.T, end time.Time) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "throttr"}, DNSNames: []string{"localhost"},
		NotAfter: end, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// proxy ends TLS in front of srv, and returns where.
func proxy(t *testing.T, srv *mockserver.Server, conf *tls.Config) string {
	ln, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	require.NoError(t, err)
	relay(t, ln, srv, func(client net.Conn) io.Reader { return client })
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	return net.JoinHostPort("localhost", port)
}

// relay passes on what clients of ln and srv send to each other, of clients what requests
// makes of it, until the test ends.
func relay(t *testing.T, ln net.Listener, srv *mockserver.Server, requests func(client net.Conn) io.Reader) {
	var tasks sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		tasks.Wait()
	})
	tasks.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", srv.Addr())
			if err != nil {
				client.Close()
				continue
			}
			pass := func(to net.Conn, from io.Reader) {
				io.Copy(to, from)
				client.Close()
				server.Close()
			}
			tasks.Go(func() { pass(server, requests(client)) })
			tasks.Go(func() { pass(client, server) })
		}
	})
}

// dialLoopback takes each host for this one: the name to verify is that of the address.
func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
}

func TestAClientWorksOverTLS(t *testing.T) {
	cert, roots := certificate(t)
	srv := mockserver.RunT(t)
	prepared := connect[uint16](t, srv, throttr.Config{})
	const callers = 500
	prepare(t, srv, prepared, callers)
	addr := proxy(t, srv, &tls.Config{Certificates: []tls.Certificate{cert}})
	cfg := throttr.Config{Servers: []string{addr}, Dial: dialLoopback, TLS: &tls.Config{RootCAs: roots}}
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
	ok, err := client.Insert(t.Context(), "k", 5, minute)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, srv.Restart(true))
	c, ok, err := client.Query(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 5, c.Quota)
}
