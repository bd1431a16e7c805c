//go:build unix

package goredis_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/testkit"
)

// What else a URL means is the same for both clients of Redis, and tested in redisbackend.

func TestOpen(t *testing.T) {
	s := testkit.StartRedis(t)
	b, err := throttr.Open(t.Context(), "goredis://"+s.Addr+"?prefix=a:&timeout=10s&max_log=5")
	noError(t, err)
	w, err := hit(t, b)
	expect(t, w.Count == 1 && errors.Join(err, b.Ping(t.Context())) == nil, "%+v, %v", w, err)
	expect(t, s.Must(t, "HLEN", "a:{k:k}:v2") == "1", "the prefix is another one")
	log := perHour
	log.Algorithm = throttr.SlidingLog
	_, err = b.Check(log)
	expect(t, errors.Is(err, throttr.ErrRange), "max_log: %v", err)
	noError(t, errors.Join(b.Close(), b.Close()))
	_, err = hit(t, b)
	expect(t, errors.Is(err, throttr.ErrClosed), "after Close: %v", err)
}

func TestServerThatIsAwayIsUnavailable(t *testing.T) {
	const url = "goredis://127.0.0.1:1"
	_, err := throttr.Open(t.Context(), url)
	expect(t, errors.Is(err, throttr.ErrUnavailable), "%v", err)
	b, err := throttr.Open(t.Context(), url+"?lazy=true")
	noError(t, err)
	defer b.Close()
	_, parts := b.BackendCloser.(outage.Parts)
	expect(t, parts, "a node of a cluster that is away opens the circuit of all")
	_, err = hit(t, b)
	expect(t, errors.Is(err, throttr.ErrUnavailable), "%v", err)
	stats := b.Stats().Stores[0]
	expect(t, stats.Name == "127.0.0.1:1" && stats.Errors == 1 && errors.Is(stats.Err, throttr.ErrUnavailable), "%+v", stats)
}

func TestErrorsOfOpenHaveNoPassword(t *testing.T) {
	for _, url := range []string{
		"goredis://zoe:12/tpw", "goredis://:12/tpw", "goredis+tls://zoe:12/tpw/s3cr", "goredis://zoe:12?db=tpw", "goredis://zoe:12?tpw=1",
		"goredis://zoe:tpw@127.0.0.1:port", "goredis://zoe:tpw@127.0.0.1:1?db=x", "goredis://zoe:tpw@127.0.0.1:1?prefx=a", "goredis://zoe:t/tpw@127.0.0.1",
	} {
		_, err := throttr.Open(t.Context(), url)
		expect(t, errors.Is(err, throttr.ErrConfig) && !strings.Contains(err.Error(), "tpw"), "%q: %v", url, err)
	}
	// Some servers repeat the user and the password.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	testkit.Serve(t, l, func(conn net.Conn) {
		defer conn.Close()
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "*") {
				fmt.Fprint(conn, "-ERR unknown command 'AUTH', with args beginning with: 'zoe' 'tpw'\r\n")
			}
		}
	})
	_, err = throttr.Open(t.Context(), "goredis://zoe:tpw@"+l.Addr().String())
	expect(t, errors.Is(err, throttr.ErrUnavailable) && strings.HasPrefix(err.Error(), "goredis: connect: "), "%v", err)
	expect(t, !strings.Contains(err.Error(), "zoe") && !strings.Contains(err.Error(), "tpw"), "%v", err)
}

func TestURLWithTLSVerifiesTheServer(t *testing.T) {
	certificate, _ := testkit.Certificate(t, "localhost", time.Now().Add(time.Hour))
	addr := testkit.TLS(t, testkit.StartRedis(t).Addr, &tls.Config{Certificates: []tls.Certificate{certificate}})
	_, err := throttr.Open(t.Context(), "goredis+tls://"+addr)
	expect(t, err != nil && strings.Contains(err.Error(), "certificate signed by unknown authority"), "%v", err)
	b, err := throttr.Open(t.Context(), "goredis+tls://"+addr+"?skip_verify=true")
	noError(t, err)
	b.Close()
}
