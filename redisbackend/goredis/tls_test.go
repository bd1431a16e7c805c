package goredis_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

// What else a URL with TLS means is the same for both clients of Redis, and tested in redisbackend.
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
		b, err := throttr.Open(t.Context(), "goredis+tls://"+url)
		if err == nil {
			_, err = b.Hit(t.Context(), "k", perHour, 1)
			b.Close()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", url, err, want)
		}
	}
}
