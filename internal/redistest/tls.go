package redistest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

// WithTLSConfig requires that a backend with a client of the program's own counts on a server whose certificate a
// private CA has signed and that demands one of clients, and that each mistake is an error that names it.
func WithTLSConfig(t *testing.T, connect func(addr string, config *tls.Config) (window.Backend, error)) {
	t.Helper()
	ours, theirs := newCA(t), newCA(t)
	addr := tlsProxy(t, Start(t), &tls.Config{
		Certificates: []tls.Certificate{ours.sign(t, "localhost")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.pool,
	})
	client := []tls.Certificate{ours.sign(t, "client")}
	for _, c := range []struct {
		name   string
		config *tls.Config
		want   string // part of the error
	}{
		{"private CA and client certificate", &tls.Config{RootCAs: ours.pool, Certificates: client}, ""},
		{"CAs of the system", &tls.Config{Certificates: client}, "certificate signed by unknown authority"},
		{"wrong CA", &tls.Config{RootCAs: theirs.pool, Certificates: client}, "certificate signed by unknown authority"},
		{"wrong host", &tls.Config{RootCAs: ours.pool, Certificates: client, ServerName: "redis.internal"}, "certificate is valid for localhost, not redis.internal"},
		{"no client certificate", &tls.Config{RootCAs: ours.pool}, "certificate required"},
	} {
		b, err := connect(addr, c.config)
		if err == nil {
			err = countTwice(t, b)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// ByTLSURL requires that a URL whose scheme is one of TLS trusts the CAs of the system, verifies the host, and needs
// TLS 1.2. On Linux SSL_CERT_FILE has those CAs. A process reads it once, so the test runs again in another one.
func ByTLSURL(t *testing.T, scheme string, open func(url string) (window.BackendCloser, error)) {
	t.Helper()
	use := func(url string) error {
		b, err := open(url)
		if err != nil && !errors.Is(err, window.ErrUnavailable) {
			t.Errorf("%s: %v is not ErrUnavailable", url, err)
		}
		if err != nil {
			return err
		}
		defer b.Close()
		return countTwice(t, b)
	}
	if url := os.Getenv(urlVariable); url != "" {
		if err := use(url); err != nil {
			t.Fatal(err)
		}
		return
	}
	ca := newCA(t)
	certificates := []tls.Certificate{ca.sign(t, "localhost")}
	server := Start(t)
	addr := tlsProxy(t, server, &tls.Config{Certificates: certificates})
	_, port, _ := net.SplitHostPort(addr)
	old := tlsProxy(t, server, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11})

	for url, want := range map[string]string{
		addr:                       "certificate signed by unknown authority",
		addr + "?skip_verify=true": "",
		old + "?skip_verify=true":  "protocol version",
	} {
		err := use(scheme + "://" + url)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", url, err, want)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	for host, want := range map[string]string{"localhost": "", "127.0.0.1": "cannot validate certificate for 127.0.0.1"} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca.file(t), urlVariable+"="+scheme+"://"+net.JoinHostPort(host, port))
		out, err := cmd.CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
			t.Errorf("%s with SSL_CERT_FILE: %v; want %q: %s", host, err, want, out)
		}
	}
}

// countTwice returns an error unless two hits are counted.
func countTwice(t *testing.T, b window.Backend) error {
	l := window.Limit{Max: 2, Scale: time.Hour, Algorithm: window.FixedWindow}
	before, err := b.Hit(t.Context(), "k", l, 1)
	if err != nil {
		return err
	}
	if w, err := b.Hit(t.Context(), "k", l, 1); err != nil || w.Count != before.Count+1 {
		return fmt.Errorf("%d hits are counted, want %d: %w", w.Count, before.Count+1, err)
	}
	return nil
}

// urlVariable is the environment variable with the URL for the process of [ByTLSURL].
const urlVariable = "THROTTR_TEST_TLS_URL"

// ca is a certificate authority.
type ca struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool // of it alone
}

func newCA(t *testing.T) *ca {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a private CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return &ca{certificate, key, pool}
}

// sign makes a certificate for a host, or for a client.
func (c *ca) sign(t *testing.T, name string) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: c.certificate.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, c.certificate, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// file writes the certificate of the authority, and returns the name of the file.
func (c *ca) file(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.certificate.Raw})
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// tlsProxy terminates TLS in front of a server, until the test ends, and returns its address.
func tlsProxy(t *testing.T, s *Server, config *tls.Config) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, func(client net.Conn) { relay(t.Context(), s, client.(*tls.Conn)) })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort("localhost", port)
}

// relay forwards requests and responses until one of the sides closes its connection, or ctx ends. After a handshake
// that failed it reads what the client still sends: otherwise the kernel resets the connection, and the client may not
// see the alert.
func relay(ctx context.Context, s *Server, client *tls.Conn) {
	defer context.AfterFunc(ctx, func() { client.NetConn().Close() })()
	if client.HandshakeContext(ctx) != nil {
		client.NetConn().(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, client.NetConn())
		client.NetConn().Close()
		return
	}
	server, err := net.Dial("tcp", s.Addr)
	if err != nil {
		client.Close()
		return
	}
	var both sync.WaitGroup
	forward := func(to, from net.Conn) {
		io.Copy(to, from)
		to.Close()
		from.Close()
	}
	both.Go(func() { forward(server, client) })
	both.Go(func() { forward(client, server) })
	both.Wait()
}
