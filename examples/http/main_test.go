package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

// output collects the output of the program. It sends the URL of the server to addr.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
	addr chan string
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if url, ok := strings.CutPrefix(string(p), "serving at "); ok && o.addr != nil {
		o.addr <- strings.TrimSpace(url)
	}
	return o.text.Write(p)
}

func requireDemonstration(t *testing.T, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), args, &out, &errs), errs.String())
	require.Empty(t, errs.String())
	require.Equal(t, 6, strings.Count(out.String(), "200 OK"))
	require.Equal(t, 1, strings.Count(out.String(), "429 Too Many Requests"))
	require.Equal(t, 6, strings.Count(out.String(), `RateLimit-Policy: "burst";q=5;w=10, "hour";q=100;w=3600`))
	require.Contains(t, out.String(), "Hello, 127.0.0.1! Requests left: 4.")
	require.Regexp(t, `RateLimit: "burst";r=4;t=([1-9]|10), "hour";r=99;t=3(600|59[0-9])\n`, out.String())
	require.Regexp(t, "Retry-After: ([1-9]|10)\n", out.String())
	require.Contains(t, out.String(), "GET /healthz\n200 OK\n\n    ok\n")
}

func TestDemonstrationRunsInMemory(t *testing.T) {
	requireDemonstration(t)
}

func TestDemonstrationRunsOnServers(t *testing.T) {
	a, b := mockserver.RunT(t, mockserver.WithValueSize(2)), mockserver.RunT(t, mockserver.WithValueSize(2))
	requireDemonstration(t, "-servers", a.Addr()+","+b.Addr())
}

func TestServesBehindProxyUntilInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &output{addr: make(chan string, 1)}
	var errs bytes.Buffer
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"-addr", "127.0.0.1:0", "-proxies", "127.0.0.0/8, ::1/128"}, out, &errs)
	}()
	url := <-out.addr
	for _, forwardedFor := range []string{"192.0.2.1", "203.0.113.9, 192.0.2.1"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		req.Header.Set("X-Forwarded-For", forwardedFor)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Contains(t, string(body), "Hello, 192.0.2.1!")
	}
	interrupt()
	require.Zero(t, <-ended, errs.String())
}

func TestInvalidArgumentsAreExplained(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
		text   string
	}{
		{[]string{"-port", "80"}, 2, "flag provided but not defined"},
		{[]string{"-proxies", "10.0.0.1"}, 1, "no '/'"},
		{[]string{"-proxies", "0.0.0.0/0"}, 1, "every address"},
		{[]string{"-addr", "127.0.0.1:x"}, 1, "listen tcp"},
		{[]string{"-servers", "127.0.0.1:1"}, 1, "can't connect"},
		{[]string{"-h"}, 0, "-addr"},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, test.status, run(t.Context(), test.args, &out, &errs), test.args)
		require.Contains(t, errs.String(), test.text)
	}
}
