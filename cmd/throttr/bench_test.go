package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/internal/tools/load"
	"github.com/throttr-go/throttr/mockserver"
)

// benchUntil runs benches of longer and longer duration until enough returns true: a busy
// machine may do nothing for a while. It returns the output of the last one, without progress.
func (s shell) benchUntil(enough func(stdout, stderr string) bool, args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	progress := regexp.MustCompile(`(?m)^[a-z ]+: ((turn \d+ of \d+|warming up), .*\d/s|warming up for .*)\n`)
	for d := 50 * time.Millisecond; d < 10*time.Second; d *= 2 {
		status, stdout, stderr = s.run("", append([]string{"bench", "--warmup", "1ms", "--duration", d.String()}, args...)...)
		stderr = progress.ReplaceAllString(stderr, "")
		if enough(stdout, stderr) {
			break
		}
	}
	return status, stdout, stderr
}

// failed returns true if a bench has printed an error.
func failed(_, stderr string) bool { return stderr != "" }

// bench runs a short bench that must succeed, and returns its JSON.
func (s shell) bench(args ...string) (records []load.Report) {
	s.t.Helper()
	idle := func(r load.Report) bool { return r.PerSecond == 0 }
	status, _, stderr := s.benchUntil(func(stdout, _ string) bool {
		records = nil
		for line := range strings.Lines(stdout) {
			var r load.Report
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
			load.Hit: codec.OpUpdate, load.Increase: codec.OpUpdate, load.Query: codec.OpQuery, load.Insert: codec.OpInsert,
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

func TestBenchMeasuresRawFramesAlone(t *testing.T) {
	t.Parallel()
	for w, frames := range map[string]load.Workload{"raw": load.Increase, "raw --frames hit": load.Hit, "raw --frames insert": load.Insert} {
		s, srv := shellFor(t, 2)
		records := s.bench(strings.Fields("--conns 3 --outstanding 7 --workload " + w)...)
		require.Len(t, records, 1)
		r := records[0]
		require.True(t, r.Raw)
		require.Equal(t, frames, r.Workload)
		require.Equal(t, 7, r.Goroutines)
		require.Equal(t, 3, r.Conns)
		require.Equal(t, 1, r.Turns)
		require.Nil(t, r.Ratio)
		require.Empty(t, testkit.Keys(srv))
	}
}

func TestBenchCleansUpOnAllServers(t *testing.T) {
	t.Parallel()
	a := mockserver.RunT(t)
	b := mockserver.RunT(t, mockserver.WithAddr("unix", t.TempDir()+"/s"))
	s := shell{t, a.Addr() + "," + b.Addr()}
	for _, w := range []string{"hit", "increase", "query", "insert"} {
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
	for w, op := range map[string]codec.Op{"increase": codec.OpUpdate, "query": codec.OpQuery, "insert": codec.OpInsert} {
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
		require.Regexp(t, `^throttr bench: \d+ operations failed, the first: a record (is missing|exists already).*\n$`, stderr)

		status, out, stderr = s.benchUntil(failing(mockserver.Fault{Op: op, Skip: 20, Times: 10, Replace: []byte{0}}), append(line, "raw", "--frames", w)...)
		require.Equal(t, statusError, status)
		require.Empty(t, out)
		require.Regexp(t, `^throttr bench: a response begins with 0x00: .*\n$`, stderr)
	}
	s, _ := shellFor(t, 1)
	_, _, stderr := s.benchUntil(failed, append(line, "hit", "--keys", "1")...)
	require.Regexp(t, `failed, the first: a window is full: these values hold 127 hits; use more --keys`, stderr)
}

func TestBenchEndsIfServerDisconnects(t *testing.T) {
	t.Parallel()
	for _, w := range []string{"increase", "raw"} {
		s, srv := shellFor(t, 2)
		srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Skip: 20, Disconnect: true})
		status, _, stderr := s.benchUntil(failed, "--keys", "10", "--workload", w)
		require.Equal(t, statusError, status)
		require.Regexp(t, `(?m)^throttr bench: `, stderr)
	}
}

// It is in virtual time, so that a busy machine is not too slow for short windows. Denials take no
// virtual time, so that the windows of all keys must never be full at once: a hit takes 1 ms at least.
func TestSparseBenchCountsWindowsAndRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		defer srv.Inject(mockserver.Fault{Delay: time.Millisecond})() // so that time passes
		bench := func(args string) string {
			dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) }
			g := &globals{servers: srv.Addr(), timeout: defaultTimeout, dial: dial}
			var stdout, stderr bytes.Buffer
			status := runWith(t.Context(), g, strings.Fields("bench --workload sparse --scale 200ms --duration 1s "+args), nil, &stdout, &stderr)
			require.Zero(t, status, stderr.String())
			return stdout.String()
		}
		var client, raw load.Report
		first, second, _ := strings.Cut(bench("--json --keys 50 --limit 12 --goroutines 2 --compare raw"), "\n")
		require.NoError(t, json.Unmarshal([]byte(first), &client))
		require.NoError(t, json.Unmarshal([]byte(second), &raw))
		w := client.Windows
		require.GreaterOrEqual(t, w.Hits, client.Operations, "the warm-up is included")
		require.Positive(t, w.Opened)
		require.Positive(t, w.Denied)
		require.Less(t, w.Opened, w.Hits)
		require.Positive(t, w.Requests.Update)
		require.Positive(t, w.Requests.Query)
		require.True(t, raw.Raw)
		require.Nil(t, raw.Windows)
		require.InDelta(t, w.OpenedPerSecond(client.PerSecond)/raw.PerSecond, *client.Ratio, 1e-9)
		for _, key := range testkit.Keys(srv) {
			require.NotContains(t, key, "bench:")
		}
		require.Regexp(t, `^workload .*
sparse .*
per window +hits  requests  to open  INSERT  UPDATE  QUERY  PURGE  server
sparse +\d+\.\d\d +\d+\.\d\d .*s
$`, bench("--keys 10 --limit 1000 --goroutines 2"))
	})
}

// program returns the path of a program that does what this one does.
func program(t *testing.T) string {
	t.Helper()
	test, err := os.Executable()
	require.NoError(t, err)
	path := t.TempDir() + "/throttr"
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nTHROTTR_TEST_PROGRAM=1 exec "+test+" \"$@\"\n"), 0o755))
	return path
}

func TestBenchTakesTurnsWithAnotherProgram(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 4)
	records := s.bench(strings.Fields("--goroutines 2 --workload increase --compare " + program(t))...)
	require.Len(t, records, 2)
	require.True(t, records[1].Other)
	require.False(t, records[0].Other)
	require.Equal(t, records[0].Turns, records[1].Turns)
	require.Equal(t, records[0].Workload, records[1].Workload)
	require.InDelta(t, records[0].PerSecond/records[1].PerSecond, *records[0].Ratio, 1e-9)
	require.Empty(t, testkit.Keys(srv))
}

func TestAnotherProgramDoesTheSame(t *testing.T) {
	b := bench{workload: load.Sparse, compare: "other", conns: 2, keys: 10, warmup: time.Second, scale: 200 * time.Millisecond, limit: 3}
	require.Equal(t, strings.Fields("bench --turns --json --servers h:9000 --workload sparse --goroutines 4 --conns 2 --keys 10 --warmup 1s --scale 200ms --limit 3"),
		newOtherLoad(&b, "h:9000", 4).args)
	b.workload = load.Hit
	require.Equal(t, strings.Fields("bench --turns --json --servers h:9000 --workload hit --goroutines 4 --conns 2 --keys 10 --warmup 1s"),
		newOtherLoad(&b, "h:9000", 4).args)
}

func TestBenchReportsHowAnotherProgramFails(t *testing.T) {
	t.Parallel()
	s, _ := shellFor(t, 2)
	status, _, stderr := s.run("", "bench", "--warmup", "1ms", "--duration", "10ms", "--compare", t.TempDir()+"/missing")
	require.Equal(t, statusError, status)
	require.Contains(t, stderr, "no such file")
	path := t.TempDir() + "/throttr"
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho flag provided but not defined: --turns >&2\nexit 2\n"), 0o755))
	status, _, stderr = s.run("", "bench", "--warmup", "1ms", "--duration", "10ms", "--compare", path)
	require.Equal(t, statusError, status)
	require.Contains(t, stderr, path+" has ended: exit status 2, flag provided but not defined: --turns")
}

func TestInterruptedBenchCleansUp(t *testing.T) {
	t.Parallel()
	for _, w := range []string{"hit", "sparse --scale 1m --limit 1000000 --keys 1000", "insert", "raw", "raw --frames insert"} {
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
			return srv.Requests(codec.OpUpdate)+srv.Requests(codec.OpInsert) > 500
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
	s.fails("bench --workload raw --conns 2 --outstanding 2047", "2047 outstanding on 2 connections", "1023", "H4")
	s.fails("bench --workload raw --frames hit --conns 1 --outstanding 512", "512 outstanding on 1 connections")
	require.Empty(t, testkit.Keys(srv))
	shell{t, "throttrs://" + srv.Addr()}.fails("bench --workload raw", "does not support TLS")
	shell{t, "127.0.0.1:1"}.fails("bench", "can't connect")
	shell{t, "127.0.0.1:1"}.fails("bench --workload raw", "can't connect")
}

func TestProgressIsPrintedOnceASecond(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			p := newProgress(&b)
			require.False(t, p.terminal)
			p.terminal = terminal
			for i := range 25 {
				p.printf("%d", i)
				time.Sleep(100 * time.Millisecond)
			}
			p.clear()
			p.clear()
			if terminal {
				require.Equal(t, "\r10\x1b[K\r20\x1b[K\r\x1b[K", b.String())
			} else {
				require.Equal(t, "10\n20\n", b.String())
			}
		})
	}
}
