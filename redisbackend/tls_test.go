package redisbackend_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// A URL whose scheme is one of TLS trusts the CAs of the system, verifies the host, and needs TLS 1.2.
func TestURLWithTLSVerifiesTheServer(t *testing.T) {
	certificate, _ := testkit.Certificate(t, "localhost", time.Now().Add(time.Hour))
	certificates := []tls.Certificate{certificate}
	server := testkit.StartRedis(t).Addr
	addr := testkit.TLS(t, server, &tls.Config{Certificates: certificates})
	old := testkit.TLS(t, server, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11})
	for url, want := range map[string]string{
		addr:                       "certificate signed by unknown authority",
		addr + "?skip_verify=true": "",
		old + "?skip_verify=true":  "protocol version",
	} {
		b, err := throttr.Open(t.Context(), "rediss://"+url)
		expect(t, err == nil || errors.Is(err, window.ErrUnavailable), "%s: %v is not ErrUnavailable", url, err)
		if err == nil {
			err = countTwice(t, b)
			b.Close()
		}
		expect(t, (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want)), "%s: %v; want %q", url, err, want)
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

// A client of the user's own has a CA and a certificate. The server asks for both.
func TestAClientWithACertificateOfItsOwn(t *testing.T) {
	folder, end := t.TempDir(), time.Now().Add(time.Hour)
	certificate, roots := testkit.Certificate(t, "localhost", end)
	mine, _ := testkit.Certificate(t, "limits", end)
	other, others := testkit.Certificate(t, "limits", end)
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	noError(t, err)
	for name, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}, "key": {Type: "PRIVATE KEY", Bytes: key},
		"mine": {Type: "CERTIFICATE", Bytes: mine.Certificate[0]},
	} {
		noError(t, os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600))
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	free.Close()
	_, port, _ := net.SplitHostPort(free.Addr().String())
	testkit.StartRedis(t, "--tls-port", port, "--tls-cert-file", filepath.Join(folder, "cert"), "--tls-key-file", filepath.Join(folder, "key"), "--tls-ca-cert-file", filepath.Join(folder, "mine"))
	for name, test := range map[string]struct {
		config *tls.Config
		works  bool
	}{
		"both":                {&tls.Config{ServerName: "localhost", RootCAs: roots, Certificates: []tls.Certificate{mine}}, true},
		"another CA":          {&tls.Config{ServerName: "localhost", RootCAs: others, Certificates: []tls.Certificate{mine}}, false},
		"no certificate":      {&tls.Config{ServerName: "localhost", RootCAs: roots}, false},
		"another certificate": {&tls.Config{ServerName: "localhost", RootCAs: roots, Certificates: []tls.Certificate{other}}, false},
	} {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + port}, TLSConfig: test.config, DisableCache: true})
		if err == nil {
			err = countTwice(t, redisbackend.New(client))
			client.Close()
		}
		expect(t, (err == nil) == test.works, "%s: %v", name, err)
	}
}
