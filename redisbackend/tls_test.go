package redisbackend_test

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
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
			err = errorOf(b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 5), 1))
			b.Close()
		}
		expect(t, (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want)), "%s: %v; want %q", url, err, want)
	}
}
