package main

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/internal/tools/load"
	"github.com/throttr-go/throttr/mockserver"
)

// benchUntil runs benches of longer and longer duration until enough returns true: a busy
// machine may do nothing for a while. It returns the output of the last one.
func (s shell) benchUntil(enough func(stdout, stderr string) bool, args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	for d := 50 * time.Millisecond; d < 10*time.Second; d *= 2 {
		status, stdout, stderr = s.run("", append([]string{"bench", "--warmup", "1ms", "--duration", d.String()}, args...)...)
		if enough(stdout, stderr) {
			break
		}
	}
	return status, stdout, stderr
}

// failed returns true if a bench has printed an error.
func failed(_, stderr string) bool { return stderr != "" }

// bench runs a short bench that must succeed, and returns its JSON.
func (s shell) bench(args ...string) (records []benchJSON) {
	s.t.Helper()
	idle := func(r benchJSON) bool { return r.PerSecond == 0 }
	status, _, stderr := s.benchUntil(func(stdout, _ string) bool {
		records = nil
		for line := range strings.Lines(stdout) {
			var r benchJSON
			require.NoError(s.t, json.Unmarshal([]byte(line), &r))
			records = append(records, r)
		}
		return !slices.ContainsFunc(records, idle)
	}, append([]string{"--json", "--keys", "50"}, args...)...)
	require.Empty(s.t, stderr)
	require.Zero(s.t, status)
	for _, r := range records {
		require.Positive(s.t, r.Operations)
		require.Positive(s.t, r.PerSecond)
		require.Positive(s.t, r.P50)
		require.LessOrEqual(s.t, r.P50, r.P99)
		require.LessOrEqual(s.t, r.P99, r.P999)
		require.Zero(s.t, r.Errors)
	}
	return records
}

func TestBenchComparesEachWorkloadWithRaw(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, srv := shellFor(t, size)
		for w, op := range map[load.Workload]codec.Op{
			load.Hit: codec.OpUpdate, load.Increase: codec.OpUpdate, load.Query: codec.OpQuery,
		} {
			if w == load.Hit && size == 1 {
				continue // its windows are full at once
			}
			before := srv.Requests(op)
			records := s.bench("--workload", string(w), "--compare", "raw", "--goroutines", "1,4")
			require.Len(t, records, 4)
			executed := 0
			for i, r := range records {
				require.Equal(t, w, r.Workload)
				require.Equal(t, i%2 == 1, r.Raw)
				require.Equal(t, 1+i/2*3, r.Goroutines)
				require.Contains(t, []int{1, 2, 3, 4}, r.Conns)
				require.Equal(t, 50, r.Keys)
				require.Equal(t, turns, r.Turns)
				executed += int(r.Operations)
				if r.Raw {
					require.Nil(t, r.Ratio)
				} else {
					require.InDelta(t, r.PerSecond/records[i+1].PerSecond, *r.Ratio, 1e-9)
				}
			}
			if w != load.Hit { // hits can share a request
				require.GreaterOrEqual(t, srv.Requests(op)-before, executed)
			}
			require.Empty(t, testkit.Keys(srv), "%s leaves nothing behind", w)
		}
	})
}

func TestBenchCleansUpOnAllServers(t *testing.T) {
	t.Parallel()
	a := mockserver.RunT(t)
	b := mockserver.RunT(t, mockserver.WithAddr("unix", t.TempDir()+"/s"))
	s := shell{t, a.Addr() + "," + b.Addr()}
	for _, w := range []string{"hit", "increase", "query"} {
		s.bench("--workload", w, "--compare", "raw")
		for _, srv := range []*mockserver.Server{a, b} {
			require.Empty(t, testkit.Keys(srv))
			require.Greater(t, srv.Requests(codec.OpPurge), 50)
		}
	}
}

func TestBenchPrintsATable(t *testing.T) {
	t.Parallel()
	s, _ := shellFor(t, 4)
	row := ` +\S+s +\S+s +\S+s +\d+\.\d\d`
	for args, want := range map[string]string{
		"--workload increase --compare raw --goroutines 2": `^workload +goroutines +conns +ops/s +p50 +p99 +CPU/op +allocs +ratio
increase +2 +1 +[1-9]\d*` + row + ` +\d+\.\d{3}
raw increase +2 +1 +[1-9]\d*` + row + ` +-
$`,
		"--workload query --goroutines 1,8": `^workload .* ratio
query +1 +1 +[1-9]\d*` + row + ` +-
query +8 +1 +[1-9]\d*` + row + ` +\d+\.\d{3}
$`,
		"--goroutines 1": `^workload .* allocs
hit +1 +1 +[1-9]\d*` + row + `
$`,
	} {
		printed := regexp.MustCompile(want)
		status, out, stderr := s.benchUntil(func(stdout, _ string) bool { return printed.MatchString(stdout) }, strings.Fields(args)...)
		require.Empty(t, stderr)
		require.Zero(t, status)
		require.Regexp(t, printed, out)
	}
}

func TestBenchReportsFailedOperations(t *testing.T) {
	t.Parallel()
	line := strings.Fields("--keys 10 --workload")
	for w, op := range map[string]codec.Op{"increase": codec.OpUpdate, "query": codec.OpQuery} {
		s, srv := shellFor(t, 2)
		remove := func() {}
		// failing injects the fault again before each bench, so that it begins after the probe.
		failing := func(fault mockserver.Fault) func(_, stderr string) bool {
			remove()
			remove = srv.Inject(fault)
			return func(stdout, stderr string) bool {
				remove()
				remove = srv.Inject(fault)
				return failed(stdout, stderr)
			}
		}
		status, out, stderr := s.benchUntil(failing(mockserver.Fault{Op: op, Skip: 20, Replace: []byte{0}}), append(line, w)...)
		require.Equal(t, statusError, status)
		require.Regexp(t, w+` +64 .* [1-9]\d*\n`, out, "the row is printed")
		require.Regexp(t, `^throttr bench: \d+ operations failed, the first: a record is missing.*\n$`, stderr)
	}
	s, _ := shellFor(t, 1)
	_, _, stderr := s.benchUntil(failed, append(line, "hit", "--keys", "1")...)
	require.Regexp(t, `failed, the first: a window is full: these values hold 127 hits; use more --keys`, stderr)
}

func TestBenchEndsIfServerDisconnects(t *testing.T) {
	t.Parallel()
	for _, w := range []string{"increase", "increase --compare raw"} {
		s, srv := shellFor(t, 2)
		srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Skip: 20, Disconnect: true})
		status, _, stderr := s.benchUntil(failed, append([]string{"--keys", "10", "--workload"}, strings.Fields(w)...)...)
		require.Equal(t, statusError, status)
		require.Regexp(t, `(?m)^throttr bench: `, stderr)
	}
}

func TestInterruptedBenchCleansUp(t *testing.T) {
	t.Parallel()
	for _, w := range []string{"hit", "increase", "query --compare raw"} {
		srv := mockserver.RunT(t, mockserver.WithValueSize(8))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out, errs bytes.Buffer
		status := make(chan int)
		go func() {
			args := strings.Fields("bench --duration 1h --timeout 1h --keys 10 --servers " + srv.Addr() + " --workload " + w)
			status <- run(ctx, args, nil, &out, &errs)
		}()
		require.Eventually(t, func() bool {
			return srv.Requests(codec.OpUpdate)+srv.Requests(codec.OpQuery) > 500
		}, time.Minute, time.Millisecond)
		cancel()
		require.Equal(t, statusError, <-status)
		require.Empty(t, out.String())
		require.Contains(t, errs.String(), "throttr bench: interrupted\n")
		require.NotContains(t, errs.String(), "left behind")
		require.Empty(t, testkit.Keys(srv), w)
	}
}

func TestBenchReportsWhatItDoesNotSupport(t *testing.T) {
	t.Parallel()
	srv := mockserver.RunT(t)
	s := shell{t, srv.Addr()}
	status, _, stderr := s.run("", strings.Fields("bench --compare raw --workload query --conns 1 --goroutines 1024 --warmup 1ms")...)
	require.Equal(t, statusError, status)
	require.Contains(t, stderr, "1024 outstanding on 1 connections are more than the 1023 responses that a server keeps for each (H4)")
	require.Empty(t, testkit.Keys(srv))
	shell{t, "throttrs://" + srv.Addr()}.fails("bench --compare raw", "does not support TLS")
	shell{t, "127.0.0.1:1"}.fails("bench", "can't connect")
	shell{t, "127.0.0.1:1"}.fails("bench --compare raw", "can't connect")
}
