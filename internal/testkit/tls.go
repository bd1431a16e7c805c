package testkit

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
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

// Certificate makes a self-signed certificate for "localhost" that is valid until end, and the
// pool that trusts it.
func Certificate(t *testing.T, end time.Time) (tls.Certificate, *x509.CertPool) {
	t.Helper()
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

// TLSProxy terminates TLS in front of srv and returns its address.
func TLSProxy(t *testing.T, srv *mockserver.Server, conf *tls.Config) string {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	require.NoError(t, err)
	Relay(t, ln, srv, func(client net.Conn) io.Reader { return client })
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	return net.JoinHostPort("localhost", port)
}

// Relay forwards bytes between clients of ln and srv until the test ends. The bytes of a client
// are those that requests returns for it.
func Relay(t *testing.T, ln net.Listener, srv *mockserver.Server, requests func(client net.Conn) io.Reader) {
	var relaying sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		relaying.Wait()
	})
	relaying.Go(func() {
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
			forward := func(to net.Conn, from io.Reader) {
				io.Copy(to, from)
				client.Close()
				server.Close()
			}
			relaying.Go(func() { forward(server, requests(client)) })
			relaying.Go(func() { forward(client, server) })
		}
	})
}

// DialLoopback connects to the address's port on this machine, whatever the host, so that the
// host is only the name that TLS verifies.
func DialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
}
