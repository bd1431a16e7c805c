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
)

// Certificate makes a certificate for a host, or for a client, until end. It is its own authority: a pool that trusts
// it alone is the other result.
func Certificate(t *testing.T, name string, end time.Time) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	noError(t, err)
	leaf, err := x509.ParseCertificate(der)
	noError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// Serve serves each connection of l in a goroutine, until the test ends, and returns the address, which is on the host
// "localhost".
func Serve(t testing.TB, l net.Listener, each func(client net.Conn)) (addr string) {
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for client, err := l.Accept(); err == nil; client, err = l.Accept() {
			serving.Go(func() { each(client) })
		}
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort("localhost", port)
}

// Relay forwards requests to a server, and its responses to the client, until one of them ends. Then it closes both.
func Relay(client, server net.Conn, requests, responses io.Reader) {
	var both sync.WaitGroup
	forward := func(to net.Conn, from io.Reader) {
		io.Copy(to, from)
		client.Close()
		server.Close()
	}
	both.Go(func() { forward(server, requests) })
	both.Go(func() { forward(client, responses) })
	both.Wait()
}

// TLS terminates TLS in front of a server, until the test ends, and returns its address. After a handshake that failed
// it reads what the client still sends: otherwise the kernel resets the connection, and the client may not see the
// alert.
func TLS(t *testing.T, server string, config *tls.Config) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	noError(t, err)
	return Serve(t, l, func(nc net.Conn) {
		client := nc.(*tls.Conn)
		defer client.NetConn().Close()
		defer context.AfterFunc(t.Context(), func() { client.NetConn().Close() })()
		if client.HandshakeContext(t.Context()) != nil {
			client.NetConn().(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, client.NetConn())
		} else if server, err := net.Dial("tcp", server); err == nil {
			Relay(client, server, client, server)
		}
	})
}
