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
	"sync/atomic"
	"testing"
	"time"
)

// Certificate makes a certificate for a host, or for a client, that is valid until end. It is its own authority, so
// Certificate also returns a pool that trusts it alone.
func Certificate(t *testing.T, name string, end time.Time) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	NoError(t, err)
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

// Proxy starts a proxy that ends with the test, and returns its address. To returns the server of the next connection.
// The proxy reads the bytes of clients, and those of the server, through the reader that through returns.
func Proxy(t testing.TB, to func() *Redis, through func(r io.Reader, ofServer bool) io.Reader) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	NoError(t, err)
	Serve(t, l, func(client net.Conn) {
		server, err := to().Dial(context.Background(), &net.Dialer{})
		if err != nil {
			client.Close()
			return
		}
		Relay(client, server, through(client, false), through(server, true))
	})
	return l.Addr().String()
}

// cut is a reader that returns EOF in place of what it reads next, once after next was set.
type cut struct {
	io.Reader
	next *atomic.Bool
}

// Read implements io.Reader.
func (c cut) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if n > 0 && c.next.Swap(false) {
		return 0, io.EOF
	}
	return n, err
}

// CutResponses makes a [Proxy] of a server that cuts the connection in place of the next response when next is set.
func CutResponses(t testing.TB, s *Redis, next *atomic.Bool) (addr string) {
	t.Helper()
	return Proxy(t, func() *Redis { return s }, func(r io.Reader, ofServer bool) io.Reader {
		if ofServer {
			return cut{r, next}
		}
		return r
	})
}

// TLS terminates TLS in front of a server, until the test ends, and returns its address. After a handshake that failed
// it reads what the client still sends: otherwise the kernel resets the connection, and the client may not see the
// alert.
func TLS(t *testing.T, server string, config *tls.Config) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	NoError(t, err)
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
