package throttr_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// listen serves connections until the end of the test, and returns the address.
func listen(t *testing.T, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return testkit.Serve(t, l, func(nc net.Conn) {
		defer nc.Close()
		serve(nc)
	})
}

// redisPort responds to lines as Redis does.
func redisPort(nc net.Conn) {
	for lines := bufio.NewScanner(nc); lines.Scan(); {
		if lines.Text() != "" {
			io.WriteString(nc, "-ERR unknown command\r\n")
		}
	}
}

// alertingTLS responds to what is no handshake with an alert, as many TLS servers do.
func alertingTLS(nc net.Conn) {
	io.ReadFull(nc, make([]byte, 1))
	nc.Write([]byte{21, 3, 1, 0, 2, 2, 70})
	io.Copy(io.Discard, nc)
}

// closingTLS closes the connection if it gets no handshake, as other TLS servers do.
func closingTLS(conf *tls.Config) func(net.Conn) {
	return func(nc net.Conn) { tls.Server(nc, conf).Handshake() }
}

func TestEachMisuseHasAnErrorThatNamesIt(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	webTLS := httptest.NewTLSServer(http.NotFoundHandler())
	defer webTLS.Close()
	webAddr, webTLSAddr := web.Listener.Addr().String(), webTLS.Listener.Addr().String()
	redis, alerting := listen(t, redisPort), listen(t, alertingTLS)
	closing := listen(t, closingTLS(&tls.Config{Certificates: webTLS.TLS.Certificates}))
	hangingUp := listen(t, func(nc net.Conn) { io.ReadFull(nc, make([]byte, 1)) })
	responding := listen(t, func(nc net.Conn) { nc.Write(make([]byte, 8)); io.Copy(io.Discard, nc) })
	plain, err := mockserver.Start() // a TLS handshake is a violation
	require.NoError(t, err)
	defer plain.Close()
	threads := mockserver.RunT(t, mockserver.WithHazard(mockserver.Reorder, true)).Addr()

	for _, c := range []struct{ mistake, url, text string }{
		{"no server", "throttr://127.0.0.1:1",
			"throttr: can't connect to 127.0.0.1:1: connect: connection refused"},
		{"TLS against plain", "throttrs://" + plain.Addr(), // the server responds or hangs up, whichever comes first
			"does not speak TLS"},
		{"TLS against a server that hangs up", "throttrs://" + hangingUp,
			"throttr: can't connect to " + hangingUp + ": the server closed the connection during the TLS handshake; if it does not speak TLS, use throttr://"},
		{"TLS against a server that responds", "throttrs://" + responding,
			"throttr: can't connect to " + responding + ": the server does not speak TLS: use throttr://, or leave Config.TLS nil"},
		{"TLS against an HTTP port", "throttrs://" + webAddr,
			"throttr: can't connect to " + webAddr + ": an HTTP server without TLS responds there, not a Throttr server"},
		{"TLS with a certificate of somebody else", "throttrs://" + webTLSAddr,
			"throttr: can't connect to " + webTLSAddr + ": tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{"plain against TLS that sends an alert", "throttr://" + alerting,
			"throttr: can't connect to " + alerting + ": the server wants TLS: use throttrs://, or set Config.TLS"},
		{"plain against TLS that hangs up", "throttr://" + closing,
			"throttr: can't connect to " + closing + ": the server closed the connection and sent nothing; if it wants TLS, use throttrs://"},
		{"an HTTP port", "throttr://" + webAddr,
			"throttr: can't connect to " + webAddr + ": an HTTP server responds there, not a Throttr server"},
		{"a Redis port", "throttr://" + redis,
			"throttr: can't connect to " + redis + ": a Redis server responds there, not a Throttr server: use package redisbackend"},
		{"a server of several threads", "throttr://" + threads,
			"throttr: can't connect to " + threads + ": the responses to the first requests are out of order: a Throttr server needs one thread, run it with --threads 0"},
		{"a forgotten import", "redis://h:6379", `throttr: invalid configuration: URL scheme "redis" is unknown (forgotten import? _ "github.com/throttr-go/throttr/redisbackend")`},
	} {
		t.Run(c.mistake, func(t *testing.T) {
			b, err := throttr.Open(t.Context(), c.url)
			require.Nil(t, b)
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "secret")
			requireSaidOnce(t, err)
		})
	}
}

// requireSaidOnce checks that a text does not begin anew for each error that it is made of.
func requireSaidOnce(t *testing.T, err error) {
	t.Helper()
	require.Equal(t, 1, strings.Count(err.Error(), "throttr: "), "%v", err)
	require.NotContains(t, err.Error(), "\n")
}

// A text names the call, the key and the server, and each of them once.
func TestErrorsOfCallsNameTheCallAndTheKeyOnce(t *testing.T) {
	ctx := t.Context()
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{MaxRetries: -1})
	l := throttr.NewRateLimit(client.Backend())
	calls := map[string]func(key string, scale time.Duration) error{
		"hit":    func(key string, scale time.Duration) error { _, err := l.Hit(ctx, key, scale, 1); return err },
		"inc":    func(key string, scale time.Duration) error { _, err := l.Inc(ctx, key, scale, 1); return err },
		"get":    func(key string, scale time.Duration) error { _, err := l.Get(ctx, key, scale); return err },
		"set":    func(key string, scale time.Duration) error { _, err := l.Set(ctx, key, scale, 1); return err },
		"reset":  func(key string, scale time.Duration) error { return l.Reset(ctx, key, scale) },
		"delete": func(key string, scale time.Duration) error { _, err := l.Delete(ctx, key, scale); return err },
	}
	backendCalls := map[string]string{"inc": "charge", "get": "peek"} // others have the name of the method
	for call, do := range calls {
		require.EqualError(t, do("user:42", 60), `throttr: `+call+` "user:42": invalid scale: 60ns is less than 1ms; did you forget the unit?`)
		if call == "delete" { // other algorithms keep windows of that scale
			continue
		}
		err := do("user:42", 90500*time.Millisecond)
		require.ErrorIs(t, err, throttr.ErrRange)
		require.ErrorContains(t, err, `throttr: `+cmp.Or(backendCalls[call], call)+` "user:42": Scale 1m30.5s is out of range`)
		requireSaidOnce(t, err)
	}

	addr := srv.Addr()
	require.NoError(t, srv.Close())
	for call, do := range calls {
		call = cmp.Or(backendCalls[call], call)
		require.Eventually(t, func() bool { // until the client has noticed
			return strings.HasPrefix(do("user:42", time.Minute).Error(),
				`throttr: `+call+` "user:42": server `+addr+` unavailable: connect: connection refused`)
		}, 10*time.Second, time.Millisecond)
		requireSaidOnce(t, do("user:42", time.Minute))
		require.ErrorContains(t, do(strings.Repeat("k", 1000), time.Minute), `throttr: `+call+` "`+strings.Repeat("k", 64)+`": server`)
	}
	var err error
	require.Eventually(t, func() bool { // its connections end one after the other
		_, _, err = client.Query(ctx, "user:42")
		return err.Error() == `throttr: QUERY "user:42": server `+addr+` unavailable: connect: connection refused (not sent)`
	}, 10*time.Second, time.Millisecond, "%v", err)
	require.Eventually(t, func() bool {
		_, err = client.WhoAmI(ctx)
		return err.Error() == `throttr: WHOAMI: server `+addr+` unavailable: connect: connection refused (not sent)`
	}, 10*time.Second, time.Millisecond, "%v", err)
	var failed *throttr.RequestError
	require.ErrorAs(t, calls["reset"]("user:42", time.Minute), &failed)
	require.Equal(t, "reset", failed.Call)
	require.Equal(t, "user:42", failed.Key)
	require.Equal(t, addr, failed.Server)
	require.NoError(t, client.Close())
	require.EqualError(t, calls["reset"]("user:42", time.Minute), `throttr: reset "user:42": server `+addr+`: closed (not sent)`)
}

func TestRequestErrorSaysWhetherTheRequestWasSent(t *testing.T) {
	lost := fmt.Errorf("%w: %w", throttr.ErrConnLost, io.EOF)
	err := error(&throttr.RequestError{Server: "h:1", Op: codec.OpInsert, Sent: true, Err: lost})
	require.EqualError(t, err, "throttr: INSERT: server h:1 unavailable: connection lost: EOF (may have been executed)")
	require.ErrorIs(t, err, throttr.ErrConnLost)
	require.ErrorIs(t, err, io.EOF)
	require.False(t, testkit.SafeToRetry(err))

	err = &throttr.RequestError{Server: "h:1", Err: throttr.ErrOverloaded}
	require.EqualError(t, err, "throttr: batch: server h:1: too many calls are waiting (not sent)")
	require.True(t, testkit.SafeToRetry(fmt.Errorf("wrapped: %w", err)))
}

func TestTimeoutRecognizesDeadlinesAndStalls(t *testing.T) {
	for _, err := range []error{
		context.DeadlineExceeded, os.ErrDeadlineExceeded, fmt.Errorf("%w: no byte", throttr.ErrStalled),
		&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded},
	} {
		require.True(t, (&throttr.RequestError{Err: err}).Timeout(), "%v", err)
	}
	for _, err := range []error{nil, context.Canceled, io.EOF, throttr.ErrConnLost, throttr.ErrOverloaded, errors.New("x")} {
		require.False(t, (&throttr.RequestError{Err: err}).Timeout(), "%v", err)
	}
}
