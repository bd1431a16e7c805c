package main

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

// quickstart runs the program and returns its status and what it has printed.
func quickstart(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	start := time.Now()
	status = run(t.Context(), args, &out, &errs)
	require.Less(t, time.Since(start), 12*time.Second, "it ends by itself")
	return status, out.String(), errs.String()
}

// requireShow checks that a show has everything in it, and no window over the limit.
func requireShow(t *testing.T, stdout string) {
	t.Helper()
	for _, word := range []string{"allowed", "denied", "opened", "reopened", "retry after"} {
		require.Contains(t, stdout, word)
	}
	counts := map[string]int{} // allowed hits in the present window
	line := regexp.MustCompile(`^ *[0-9.]+s +(\w+) +[0-9]+ +(allowed|denied) +([0-9]+) `)
	n := 0
	for l := range strings.Lines(stdout) {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		n++
		user := m[1]
		if m[3] == "1" {
			counts[user] = 0
		}
		if m[2] == "allowed" {
			counts[user]++
		}
		require.LessOrEqual(t, counts[user], limit, l)
	}
	require.Greater(t, n, 30, "lines")
	require.Regexp(t, `(?m)^alice +1[0-5] +[1-9][0-9]* +3 +2$`, stdout)
}

func TestTheShowRunsOnAMockServer(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := quickstart(t)
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	requireShow(t, stdout)
	require.Contains(t, stdout, "Left on the mock server: 0 records. Expired there: 0.")
}

func TestTheShowRunsOnServers(t *testing.T) {
	t.Parallel()
	a, b := mockserver.RunT(t, mockserver.WithValueSize(2)), mockserver.RunT(t, mockserver.WithValueSize(2))
	status, stdout, stderr := quickstart(t, "-servers", a.Addr()+","+b.Addr())
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	requireShow(t, stdout)
	for _, srv := range []*mockserver.Server{a, b} {
		require.Empty(t, srv.Keys())
		require.Zero(t, srv.Expired())
	}
}

// requireSentence checks that a program has failed with one sentence.
func requireSentence(t *testing.T, status int, stderr string) {
	t.Helper()
	require.Equal(t, 1, status)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	require.True(t, strings.HasSuffix(stderr, ".\n"), stderr)
}

func TestAServerOfAnotherValueSizeIsASentence(t *testing.T) {
	t.Parallel()
	for size, name := range map[int]string{1: "has 1-byte values (uint8)", 4: "has 4-byte values (uint32)", 8: "has 8-byte values (uint64)"} {
		srv := mockserver.RunT(t, mockserver.WithValueSize(size))
		status, _, stderr := quickstart(t, "-servers", srv.Addr())
		requireSentence(t, status, stderr)
		require.Contains(t, stderr, srv.Addr())
		require.Contains(t, stderr, name)
	}
}

func TestNobodyThereIsASentence(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	status, _, stderr := quickstart(t, "-servers", addr)
	requireSentence(t, status, stderr)
	require.Contains(t, stderr, addr)
	require.Contains(t, stderr, "refused")
}

func TestAServerThatGoesAwayIsASentence(t *testing.T) {
	t.Parallel()
	srv := mockserver.RunT(t, mockserver.WithValueSize(2))
	hangUp := time.AfterFunc(time.Second, func() { srv.Close() })
	defer hangUp.Stop()
	status, _, stderr := quickstart(t, "-servers", srv.Addr())
	requireSentence(t, status, stderr)
}

func TestAnInterruptEndsTheShow(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, context.Canceled)
	defer cancel()
	var out, errs bytes.Buffer
	status := run(ctx, nil, &out, &errs)
	require.Equal(t, 1, status)
	require.Contains(t, out.String(), "alice")
}

func TestUnknownFlagsAreUsage(t *testing.T) {
	t.Parallel()
	status, _, stderr := quickstart(t, "-no-such-flag")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "-servers")
}
