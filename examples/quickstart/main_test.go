package main

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// runProgram runs the program and returns its exit status and output.
func runProgram(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), args, &out, &errs)
	return status, out.String(), errs.String()
}

// requireLimits requires that the output has hits, and that no window has more allowed hits than the
// limit: none has a higher count, and no count is more frequent than 1, which each window has. It returns
// the number of hits. The lines of a user need not be in order.
func requireLimits(t *testing.T, stdout string) (n int) {
	t.Helper()
	type place struct{ user, count string }
	allowed := map[place]int{}
	line := regexp.MustCompile(`^ *[0-9.]+s +(\w+) +[0-9]+ +(allowed|denied) +([0-9]+) `)
	for l := range strings.Lines(stdout) {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		n++
		if m[2] == "denied" {
			continue
		}
		count, err := strconv.Atoi(m[3])
		require.NoError(t, err)
		require.LessOrEqual(t, count, limit, l)
		allowed[place{m[1], m[3]}]++
	}
	require.Positive(t, n, stdout)
	for p, times := range allowed {
		require.LessOrEqual(t, times, allowed[place{p.user, "1"}], "%+v", p)
	}
	return n
}

func TestOutputHasAllowedAndDeniedHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.RunT(t, mockserver.WithAddr("memory", "memory:1"))
		client, err := throttr.Connect[uint16.Value](t.Context(), throttr.Config{
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) },
		})
		require.NoError(t, err)
		defer client.Close()
		start := time.Now()
		var out bytes.Buffer
		require.NoError(t, simulate(t.Context(), throttr.NewRateLimit(client.Backend()), &out))
		require.Less(t, time.Since(start), 8*time.Second)
		require.NoError(t, client.Close())
		require.Empty(t, testkit.Keys(srv))
		require.Zero(t, srv.Expired())

		stdout := out.String()
		require.Greater(t, requireLimits(t, stdout), 40)
		for _, word := range []string{"allowed", "denied", "opened", "reopened", "retry after"} {
			require.Contains(t, stdout, word)
		}
		require.Regexp(t, `(?m)^alice +1[0-5] +[1-9][0-9]* +3 +2$`, stdout)
	})
}

func TestQuickstartRunsOnMockServer(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := runProgram(t)
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	requireLimits(t, stdout)
	require.Contains(t, stdout, "Left on the mock server: 0 records of windows. Expired there: 0.")
}

func TestQuickstartRunsOnServers(t *testing.T) {
	t.Parallel()
	a, b := mockserver.RunT(t, mockserver.WithValueSize(2)), mockserver.RunT(t, mockserver.WithValueSize(2))
	status, stdout, stderr := runProgram(t, "-servers", a.Addr()+","+b.Addr())
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	requireLimits(t, stdout)
	for _, srv := range []*mockserver.Server{a, b} {
		require.Empty(t, testkit.Keys(srv))
		require.Zero(t, srv.Expired())
	}
}

func TestFailuresAreOneLine(t *testing.T) {
	t.Parallel()
	srv := mockserver.RunT(t, mockserver.WithValueSize(4))
	for addr, want := range map[string]string{srv.Addr(): "those of " + srv.Addr() + " 4 bytes (use uint32)", "127.0.0.1:1": "127.0.0.1:1: connect: connection refused"} {
		status, _, stderr := runProgram(t, "-servers", addr)
		require.Equal(t, 1, status)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		require.Contains(t, stderr, want)
	}
	status, _, stderr := runProgram(t, "-no-such-flag")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "-servers")
}

// trigger is a writer that calls a function when a word has been written.
type trigger struct {
	word    string
	call    func()
	written bytes.Buffer
	once    sync.Once
}

func (tr *trigger) Write(p []byte) (int, error) {
	tr.written.Write(p)
	if strings.Contains(tr.written.String(), tr.word) {
		tr.once.Do(tr.call)
	}
	return len(p), nil
}

func TestQuickstartEndsIfItIsInterruptedOrLosesItsServer(t *testing.T) {
	t.Parallel()
	srv := mockserver.RunT(t, mockserver.WithAddr("unix", t.TempDir()+"/s"))
	ctx, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		args []string
		end  func()
	}{{[]string{"-servers", srv.Addr()}, func() { srv.Close() }}, {nil, cancel}} {
		var errs bytes.Buffer
		require.Equal(t, 1, run(ctx, c.args, &trigger{word: "alice", call: c.end}, &errs))
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
	}
}
