package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestMain(m *testing.M) {
	os.Unsetenv("THROTTR_URL")
	os.Exit(m.Run())
}

// shell runs the program with a store.
type shell struct {
	t     *testing.T
	store string
}

// shellFor starts a mock server and returns a shell for it.
func shellFor(t *testing.T, size int, opts ...mockserver.Option) (shell, *mockserver.Server) {
	srv := mockserver.RunT(t, append(opts, mockserver.WithValueSize(size))...)
	return shell{t, srv.Addr()}, srv
}

// onRedis starts a Redis and returns a shell for it.
func onRedis(t *testing.T) shell {
	return shell{t, "redis://" + testkit.StartRedis(t).Addr + "?prefix=test:"}
}

// forStores runs a test on Redis and on a mock server.
func forStores(t *testing.T, f func(t *testing.T, s shell, redis bool)) {
	t.Run("Redis", func(t *testing.T) { f(t, onRedis(t), true) })
	t.Run("Throttr", func(t *testing.T) {
		s, _ := shellFor(t, 4)
		f(t, s, false)
	})
}

// run runs the program.
func (s shell) run(stdin string, args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	if s.store != "" {
		args = append([]string{"--store", s.store}, args...)
	}
	status = run(s.t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

var spaces = regexp.MustCompile(` +`)

// passing are times of which a part may have passed, and what was there before.
var passing = map[string]string{
	`\b23h59m\d+s`: "24h", `\b59m\d+s`: "1h", `\b5\ds\b`: "1m",
	`\b35\d\d(\.\d+)?\b|\b3600\.0+\b`: "3600", `"ends_at":"20[^"]+Z"`: `"ends_at":"then"`,
}

// plainly makes outputs comparable: columns are as wide as anything in them, and time passes.
func plainly(output string) string {
	for of, by := range passing {
		output = regexp.MustCompile(of).ReplaceAllString(output, by)
	}
	return spaces.ReplaceAllString(output, " ")
}

// prints requires a command to print want, and nothing on standard error. Spaces separate the
// words of the command line.
func (s shell) prints(status int, want, line string) {
	s.t.Helper()
	got, stdout, stderr := s.run("", strings.Split(line, " ")...)
	require.Empty(s.t, stderr, line)
	require.Equal(s.t, plainly(strings.TrimPrefix(want, "\n")), plainly(stdout), line)
	require.Equal(s.t, status, got, line)
}

// does requires a command to succeed, and returns what it prints.
func (s shell) does(line string) string {
	s.t.Helper()
	status, stdout, stderr := s.run("", strings.Fields(line)...)
	require.Empty(s.t, stderr, line)
	require.Zero(s.t, status, line)
	return stdout
}

// fails requires a command to print only one error, which contains these words.
func (s shell) fails(line string, words ...string) {
	s.t.Helper()
	require.Empty(s.t, s.breaksOff(line, words...), line)
}

// breaksOff is fails for a command that may have printed something before. It returns that.
func (s shell) breaksOff(line string, words ...string) string {
	s.t.Helper()
	status, stdout, stderr := s.run("", strings.Split(line, " ")...)
	require.Equal(s.t, statusError, status, line)
	first, rest, _ := strings.Cut(stderr, "\n")
	require.True(s.t, strings.HasPrefix(first, "throttr"), stderr)
	require.Empty(s.t, rest)
	for _, w := range words {
		require.Contains(s.t, first, w, line)
	}
	return stdout
}

// TestDocument runs what docs/command.md shows, on Redis and on a mock server.
func TestDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/command.md")
	require.NoError(t, err)
	forStores(t, func(t *testing.T, s shell, redis bool) {
		if redis { // the customer of the first part
			key := " client:hHUGp-T_zcKaet1bvquTEr_DwmBYqLUP2zlCSBc8HRPo"
			for _, line := range []string{"take --name minute --limit 60 --scale 1m -n 60", "take --name day --limit 5000 --scale 24h -n 312"} {
				s.does(line + key)
			}
		}
		ran := 0
		for i, block := range strings.Split(string(document), "```") {
			if i%2 == 0 || !strings.Contains(block, "$ throttr ") {
				continue
			}
			for _, shown := range strings.Split("\n"+strings.TrimSpace(block), "\n$ throttr ")[1:] {
				line, want, _ := strings.Cut(shown, "\n")
				if !redis && strings.Contains(line, " client:h") { // it shows Max, which only Redis knows
					continue
				}
				status := 0
				if before, no := strings.CutSuffix("\n"+want, "\n# (exit status 1)"); no {
					want, status = strings.TrimPrefix(before, "\n"), statusNo
				}
				s.prints(status, want+"\n", line)
				ran++
			}
		}
		require.GreaterOrEqual(t, ran, 8)
	})
}

func TestStoreIsAURL(t *testing.T) {
	a, b := mockserver.RunT(t), mockserver.RunT(t)
	socket := filepath.Join(t.TempDir(), "s")
	c := mockserver.RunT(t, mockserver.WithAddr("unix", socket))
	for _, store := range []string{a.Addr() + "," + b.Addr(), "throttr://" + a.Addr() + "," + b.Addr() + "?max_conns=1&lazy=true"} {
		before := a.Requests(codec.OpInsert) + b.Requests(codec.OpInsert)
		shell{t, store}.prints(1, "key quota ttl\nk - not found\n", "query k")
		shell{t, store}.prints(0, "k inserted\n", "insert --ttl 1h k 1")
		shell{t, store}.prints(0, "k purged\n", "purge k")
		require.Greater(t, a.Requests(codec.OpInsert)+b.Requests(codec.OpInsert), before)
	}
	a.Inject(mockserver.Fault{Times: 1, Delay: 700 * time.Millisecond}) // longer than a lazy start waits
	require.Contains(t, shell{t, "throttr://" + a.Addr() + "?lazy=true"}.does("ping"), "it is there")
	shell{t, "unix://" + socket}.prints(0, "k inserted\n", "insert --ttl 1h k 1")
	require.Positive(t, c.Requests(codec.OpInsert))
	t.Setenv("THROTTR_URL", a.Addr())
	shell{t, ""}.prints(0, "k inserted\n", "insert --ttl 1h k 1")
	t.Setenv("THROTTR_URL", "nonsense://")
	shell{t, ""}.fails("list", `"nonsense"`)
	shell{t, ""}.fails("query k", `"nonsense"`)
	shell{t, ""}.prints(1, "key quota ttl\nk - not found\n", "query --store "+b.Addr()+" k")
	for _, store := range []string{"127.0.0.1:1", "throttr://127.0.0.1:1?lazy=true", "redis://127.0.0.1:1", "redis://127.0.0.1:1?lazy=1"} {
		for _, line := range []string{"list", "ping", "hit --scale 1m --limit 1 k", "top"} {
			shell{t, store}.fails(line, "127.0.0.1:1")
		}
	}
	shell{t, a.Addr() + ",127.0.0.1:1"}.fails("query k", "can't connect to 127.0.0.1:1")
	for _, store := range []string{"throttr://user:secret@host", "redis://:secret@127.0.0.1:x"} {
		_, _, stderr := shell{t, store}.run("", "list")
		require.NotContains(t, stderr, "secret")
		require.Contains(t, stderr, "URL")
	}
	shell{t, "postgres://127.0.0.1:1"}.fails("info", `it is for Throttr servers alone, and the store is one of "postgres"`)
	require.Contains(t, shell{t, a.Addr()}.does("ping"), "it is there")
	four := mockserver.RunT(t, mockserver.WithValueSize(4))
	shell{t, a.Addr() + "," + four.Addr()}.fails("query k", a.Addr()+" has 2-byte values, and "+four.Addr()+" has 4-byte values")
}

func TestTimeoutAndInterruptEndACommand(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	require.Equal(t, statusError, run(ctx, []string{"--store", srv.Addr(), "query", "k"}, nil, &out, &errs))
	require.Regexp(t, "^throttr query: interrupted: .*"+srv.Addr(), errs.String())
	for _, args := range [][]string{{"--timeout", "0s", "key", "k"}, {"key", "--timeout", "0s", "k"}} {
		e := &env{timeout: defaultTimeout, out: newOutput(io.Discard)}
		_, _, err := e.execute(t.Context(), args)
		require.NoError(t, err)
		require.Zero(t, e.timeout, "no limit: %v", args)
	}
	for op, lines := range map[codec.Op][]string{
		codec.OpQuery:     {"query --timeout 50ms k", "--timeout 50ms hit --scale 1m --limit 1 k", "top --timeout 50ms"},
		codec.OpSubscribe: {"subscribe --timeout 50ms news"},
		codec.OpInsert:    {"insert --timeout 50ms --ttl 1m k 1"},
	} {
		remove := srv.Inject(mockserver.Fault{Op: op, Delay: time.Minute})
		for _, line := range lines {
			s.fails(line, "not done after 50ms", "--timeout", srv.Addr())
		}
		remove()
		srv.Disconnect()
	}
	srv.Inject(mockserver.Fault{Op: codec.OpPurge, Key: "k", Delay: time.Minute})
	s.fails("purge --timeout 50ms k", "may have been executed")
}

// full is a writer that always fails.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestFailedWriteIsAnError(t *testing.T) {
	t.Parallel()
	srv := mockserver.RunT(t)
	for _, args := range [][]string{{"query", "k"}, {"--json", "query", "k"}, {"help"}, {"mock", "--addr", "127.0.0.1:0"}} {
		require.Equal(t, statusError, run(t.Context(), append([]string{"--store", srv.Addr()}, args...), nil, full{}, io.Discard), args)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	s := shell{t, "127.0.0.1:1"} // never used
	for line, words := range map[string]string{
		"nonsense":                                      `no command "nonsense"`,
		"--nonsense list":                               "--nonsense is no flag here",
		"hit --scale":                                   "--scale needs a value",
		"hit k":                                         "--limit is missing",
		"hit --limit 3 k":                               "--scale, or --calendar, is missing",
		"hit --scale 1m --limit 1":                      "0 arguments, and it takes key...",
		"hit --scale x --limit 1 k":                     "--scale x: not a duration such as 60s",
		"hit --scale 60 --limit 1 k":                    "--scale 60: a duration needs a unit, such as 60s",
		"hit --scale -1m --limit 1 k":                   "--scale -1m: must be at least 0s",
		"hit --scale 1m --limit -3 k":                   "--limit -3: must be at least 0",
		"hit --scale 1m --limit 1.5 k":                  "--limit 1.5: must be a whole number",
		"hit --scale 1m --limit 18446744073709551616 k": "--limit 18446744073709551616: must be at most 18446744073709551615",
		"list --json=yes":                               "--json yes: must be true or false",
		"take --scale 1m --limit 1 -n 0 k":              "--n 0: must be at least 1",
		"hit --algorithm quick --limit 1 k":             `--algorithm quick: unsupported operation: algorithm "quick"`,
		"forget --algorithm= k":                         "--algorithm : must not be empty",
		"forget --calendar= k":                          "--calendar : must not be empty",
		"forget":                                        "0 arguments, and it takes key...",
		"top --every 1ms":                               "--every 1ms: must be at least 100ms",
		"insert k 1":                                    "--ttl is missing",
		"set k v":                                       "--ttl is missing",
		"update k 3":                                    "change 3: must begin with +, - or =",
		"mock --addr 127.0.0.1:0 --unix /tmp/s":         "--addr and --unix can't be used together",
		"mock --hazard grace=no":                        "grace=no is not of the form grace=on or grace=off",
		"mock --hazard graze=on":                        `no hazard "graze"`,
	} {
		s.fails(line, words)
	}
}

func TestFlagsAndArgumentsMix(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2, mockserver.WithVirtualClock())
	s.prints(0, "jobs inserted\n", "insert jobs 5 --ttl=1m")
	s.prints(0, `{"key":"jobs","ok":true,"result":"updated"}`+"\n", "--json update jobs -3")
	quota, _ := srv.Counter("jobs")
	require.EqualValues(t, 2, quota)
	s.prints(0, `{"key":"jobs","ok":true,"result":"purged"}`+"\n", "purge jobs -json")
	s.prints(0, "-3 inserted\n", "insert --ttl 1m -3 5")
	s.prints(1, "-3 purged\n-.5 not found\n", "purge -3 -.5")
	s.prints(0, "--json inserted\n", "insert --ttl 1m -- --json 5")
	s.prints(1, "a not found\n", "--json --json=false purge a")
	status, out, _ := s.run("", "set", "--ttl", "1m", "--json=true", "a\x00\xff", "\x00")
	require.Zero(t, status)
	require.Equal(t, `{"key":"a\u0000\ufffd","key_base64":"YQD/","ok":true,"result":"set"}`+"\n", out)
}

func TestHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	s := shell{t, ""}
	all := s.does("help")
	for _, c := range commands() {
		help := s.does("help " + c.name)
		require.Equal(t, help, s.does(c.name+" -h"))
		require.True(t, strings.HasPrefix(help, "throttr "+c.name+": "+c.short+".\n\n  throttr "+c.name+" [flags]"), help)
		require.Regexp(t, `^( \[?[a-z]+(\.\.\.)?\]?)*$`, c.args)
		require.Contains(t, all, fmt.Sprintf("\n  %s ", c.name))
		require.NotEmpty(t, c.short)
		require.Contains(t, help, "\nFlags:\n")
		for line := range strings.Lines(help[:strings.Index(help, "\nFlags:")]) {
			require.LessOrEqual(t, len(line), 82, line)
			example, is := strings.CutPrefix(line, "  throttr "+c.name+" ")
			if !is || strings.Contains(line, "[flags]") {
				continue
			}
			e := &env{out: newOutput(io.Discard)}
			f := newFlags(e)
			c.setup(e, f)
			example, _, _ = strings.Cut(example, " && ")
			example, _, _ = strings.Cut(example, "   ")
			args, err := f.parse(strings.Fields(example))
			require.NoError(t, err, line)
			require.NoError(t, c.check(args), line)
		}
	}
	require.Regexp(t, `^throttr  \S+  go1\S+  \w+/\w+\n$`, s.does("--version"))
	require.Equal(t, all, s.does(""))
}
