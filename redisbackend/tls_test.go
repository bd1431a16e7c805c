package redisbackend_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// A backend with a client of the program's own counts on a server whose certificate a private CA has signed and that
// demands one of clients. Each mistake is an error that names it.
func TestClientWithAPrivateCAAndACertificate(t *testing.T) {
	ours, theirs, end := testkit.NewCA(t), testkit.NewCA(t), time.Now().Add(time.Hour)
	addr := testkit.TLS(t, testkit.StartRedis(t).Addr, &tls.Config{
		Certificates: []tls.Certificate{ours.Sign(t, "localhost", end)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool,
	})
	client := []tls.Certificate{ours.Sign(t, "client", end)}
	for _, c := range []struct {
		name   string
		config *tls.Config
		want   string // part of the error
	}{
		{"private CA and client certificate", &tls.Config{RootCAs: ours.Pool, Certificates: client}, ""},
		{"CAs of the system", &tls.Config{Certificates: client}, "certificate signed by unknown authority"},
		{"wrong CA", &tls.Config{RootCAs: theirs.Pool, Certificates: client}, "certificate signed by unknown authority"},
		{"wrong host", &tls.Config{RootCAs: ours.Pool, Certificates: client, ServerName: "redis.internal"}, "certificate is valid for localhost, not redis.internal"},
		{"no client certificate", &tls.Config{RootCAs: ours.Pool}, "certificate required"},
	} {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, TLSConfig: c.config, DisableCache: true})
		if err == nil {
			err = countTwice(t, redisbackend.New(client))
			client.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// A URL whose scheme is one of TLS trusts the CAs of the system, verifies the host, and needs
// TLS 1.2. On Linux SSL_CERT_FILE has those CAs. A process reads it once, so the test runs again in another one.
func TestURLWithTLSTrustsTheCAsOfTheSystem(t *testing.T) {
	use := func(url string) error {
		b, err := throttr.Open(t.Context(), url)
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
	ca := testkit.NewCA(t)
	certificates := []tls.Certificate{ca.Sign(t, "localhost", time.Now().Add(time.Hour))}
	server := testkit.StartRedis(t).Addr
	addr := testkit.TLS(t, server, &tls.Config{Certificates: certificates})
	_, port, _ := net.SplitHostPort(addr)
	old := testkit.TLS(t, server, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11})

	for url, want := range map[string]string{
		addr:                       "certificate signed by unknown authority",
		addr + "?skip_verify=true": "",
		old + "?skip_verify=true":  "protocol version",
	} {
		err := use("rediss://" + url)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", url, err, want)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	for host, want := range map[string]string{"localhost": "", "127.0.0.1": "cannot validate certificate for 127.0.0.1"} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca.File(t), urlVariable+"="+"rediss://"+net.JoinHostPort(host, port))
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

// urlVariable is the environment variable with the URL for the process of TestURLWithTLSTrustsTheCAsOfTheSystem.
const urlVariable = "THROTTR_TEST_TLS_URL"
