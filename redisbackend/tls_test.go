package redisbackend_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/window"
)

// A URL whose scheme is one of TLS trusts the CAs of the system, verifies the host, and needs TLS 1.2.
func TestURLWithTLSVerifiesTheServer(t *testing.T) {
	certificates := []tls.Certificate{testkit.NewCA(t).Sign(t, "localhost", time.Now().Add(time.Hour))}
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
