package testkit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	Pool *x509.CertPool // of it alone

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewCA makes an authority that is valid for an hour.
func NewCA(t *testing.T) *CA {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a private CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	certificate, err := x509.ParseCertificate(create(t, template, template, key, key))
	noError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return &CA{pool, certificate, key}
}

// Sign makes a certificate for a host, or for a client.
func (c *CA) Sign(t *testing.T, name string, end time.Time) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key := newKey(t)
	return tls.Certificate{Certificate: [][]byte{create(t, template, c.certificate, key, c.key)}, PrivateKey: key}
}

// File writes the certificate of the authority, and returns the name of the file.
func (c *CA) File(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.certificate.Raw})
	noError(t, os.WriteFile(name, text, 0o600))
	return name
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	return key
}

func create(t *testing.T, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	noError(t, err)
	return der
}

// Serve serves each connection of l in a goroutine, until the test ends.
func Serve(t testing.TB, l net.Listener, each func(client net.Conn)) {
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
	Serve(t, l, func(nc net.Conn) {
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
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort("localhost", port)
}
