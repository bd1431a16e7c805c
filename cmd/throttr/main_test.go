package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// TestMain runs the program instead of the tests in a process that a test has started.
func TestMain(m *testing.M) {
	if os.Getenv("THROTTR_TEST_PROGRAM") != "" {
		main()
	}
	os.Unsetenv("THROTTR_SERVERS")
	os.Exit(m.Run())
}

var sizes = []int{1, 2, 4, 8}

// shell runs the program with these servers.
type shell struct {
	t       *testing.T
	servers string
}

// shellFor starts a mock server and returns a shell for it.
func shellFor(t *testing.T, size int, opts ...mockserver.Option) (shell, *mockserver.Server) {
	srv := mockserver.RunT(t, append(opts, mockserver.WithValueSize(size))...)
	return shell{t, srv.Addr()}, srv
}

// run runs the program.
func (s shell) run(stdin string, args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	if s.servers != "" {
		args = append([]string{"--servers", s.servers}, args...)
	}
	status = run(s.t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

// prints requires a command to print want, and nothing on standard error. Spaces separate the
// words of the command line.
func (s shell) prints(status int, want, line string) {
	s.t.Helper()
	got, stdout, stderr := s.run("", strings.Split(line, " ")...)
	require.Empty(s.t, stderr, line)
	require.Equal(s.t, strings.TrimPrefix(want, "\n"), stdout, line)
	require.Equal(s.t, status, got, line)
}

// fails requires a command to print only one error, which contains these words.
func (s shell) fails(line string, words ...string) {
	s.t.Helper()
	status, stdout, stderr := s.run("", strings.Split(line, " ")...)
	require.Equal(s.t, statusError, status, line)
	require.Empty(s.t, stdout, line)
	first, rest, _ := strings.Cut(stderr, "\n")
	require.True(s.t, strings.HasPrefix(first, "throttr"), stderr)
	require.Empty(s.t, rest)
	for _, w := range words {
		require.Contains(s.t, first, w, line)
	}
}

// forSizes runs a test for each value size.
func forSizes(t *testing.T, f func(t *testing.T, size int)) {
	t.Parallel()
	for _, size := range sizes {
		t.Run(fmt.Sprintf("uint%d", 8*size), func(t *testing.T) {
			t.Parallel()
			f(t, size)
		})
	}
}

func TestHitsAreAllowedUpToLimit(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, srv := shellFor(t, size)
		status, out, stderr := s.run("", "hit", "--scale", "1m", "--limit", "2", "a", "user:42")
		require.Zero(t, status, stderr)
		require.Regexp(t, `^key      decision  count  limit  remaining  window ends in
a        allowed       1      2          1 +(59\.\d+s|1m0s)
user:42  allowed       1      2          1 +(59\.\d+s|1m0s)
$`, out)

		status, out, stderr = s.run("", "hit", "--scale=1m", "--limit=2", "-n=2", "a")
		require.Equal(t, statusNo, status, stderr)
		require.Regexp(t, `(?m)^a    denied        3      2          0 +(5\d\.\d+s|1m0s)$`, out)

		status, out, _ = s.run("", "hit", "--json", "--scale", "1m", "--limit", "2", "a", "b")
		require.Equal(t, statusNo, status, "one was denied")
		require.Regexp(t, `^\{"key":"a","allowed":false,"count":[34],"limit":2,"remaining":0,"retry_after_seconds":[0-9.]+,"reset_at":"20[^"]+Z"\}
\{"key":"b","allowed":true,"count":1,"limit":2,"remaining":1,"retry_after_seconds":0,"reset_at":"20[^"]+Z"\}
$`, out)
		require.Len(t, testkit.Keys(srv), 3, "the records of the windows remain")

		s.prints(1, "a       reset\nnobody  no window\n", "reset --scale 1m a nobody")
		status, out, _ = s.run("", "hit", "--scale", "1m", "--limit", "2", "a")
		require.Zero(t, status)
		require.Contains(t, out, "a    allowed       1 ")
	})
}

// remains is an hour less a nanosecond, rounded down to the finest unit that fits each value
// size.
var remains = map[int]struct{ text, seconds string }{
	1: {"59m0s", "3540"},
	2: {"59m59s", "3599"},
	4: {"1h0m0s", "3599.999999"},
	8: {"1h0m0s", "3599.999999999"},
}

func TestCommandChangesCounters(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, srv := shellFor(t, size, mockserver.WithVirtualClock())
		s.prints(0, "jobs  inserted\n", "insert --ttl 1h jobs 100")
		s.prints(1, "jobs  exists\n", "insert --ttl 1h jobs 100")
		s.prints(0, "jobs  updated\n", "update jobs +3")
		s.prints(0, "jobs  updated\n", "update jobs -4")
		s.prints(1, "jobs  would go below zero\n", "update jobs -100")
		ttl := remains[size].text
		s.prints(0, fmt.Sprintf("key   quota  %[2]*[1]s\njobs     99  %[2]*[3]s\n", "ttl", max(3, len(ttl)), ttl), "query jobs")
		s.prints(1, `{"key":"jobs","found":true,"quota":99,"ttl_seconds":`+remains[size].seconds+`}
{"key":"nobody","found":false}
`, "query --json jobs nobody")
		s.prints(0, "jobs  updated\n", "update jobs =0")
		quota, ok := srv.Counter("jobs")
		require.True(t, ok)
		require.Zero(t, quota)
		s.prints(1, "nobody  not found\n", "update nobody +1")
		s.prints(1, `{"key":"nobody","ok":false,"result":"not found"}`+"\n", "update --json nobody =1")
		s.prints(1, "jobs    purged\nnobody  not found\n", "purge jobs nobody")
		require.Empty(t, srv.Keys())
	})
}

func TestTTLIsChangedInItsUnit(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, srv := shellFor(t, size, mockserver.WithVirtualClock())
		left := func() time.Duration {
			d, ok := srv.TTL("jobs")
			require.True(t, ok)
			return d.Round(time.Millisecond)
		}
		s.prints(0, "jobs  inserted\n", "insert --ttl 100s jobs 1")
		s.prints(0, "jobs  updated\n", "update --ttl jobs +30s")
		require.Equal(t, 130*time.Second, left())
		s.prints(0, "jobs  updated\n", "update --ttl jobs -1m")
		require.Equal(t, 70*time.Second, left())
		s.prints(0, "jobs  updated\n", "update --ttl jobs =1m30s")
		require.Equal(t, 90*time.Second, left())
		s.prints(1, "nobody  not found\n", "update --ttl nobody =1m")
		if size == 1 {
			s.fails("update --ttl jobs +1500ms", "1.5s", "whole number of s", "jobs")
			s.fails("update --ttl jobs +1h", "TTL 3600 is out of range", "2-byte values (uint16) would do")
		}
	})
}

func TestCommandSetsAndGetsBuffers(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, srv := shellFor(t, size, mockserver.WithVirtualClock())
		s.prints(0, "greeting  set\n", "set --ttl 1h greeting hello")
		status, out, stderr := s.run("hello, world\n", "set", "--ttl", "1h", "piped", "-")
		require.Zero(t, status, stderr)
		require.Equal(t, "piped  set\n", out)
		ttl := remains[size]
		width := max(3, len(ttl.text))
		s.prints(1, fmt.Sprintf(`
key       bytes  %[2]*[1]s  value
greeting      5  %[2]*[3]s  hello
piped        13  %[2]*[3]s  "hello, world\n"
nobody        -  %[2]*[4]s
`, "ttl", max(width, len("not found")), ttl.text, "not found"), "get greeting piped nobody")
		s.prints(1, `{"key":"piped","found":true,"value":"hello, world\n","ttl_seconds":`+ttl.seconds+`}
{"key":"nobody","found":false}
`, "get --json piped nobody")
		s.prints(0, "hello, world\n", "get --raw piped")
		s.prints(1, "", "get --raw nobody")

		s.prints(1, "greeting  is a buffer\n", "update greeting +1")
		s.prints(0, "jobs  inserted\n", "insert --ttl 1h jobs 1")
		s.prints(1, "jobs  is a counter, or has just expired\n", "set --ttl 1h jobs hello")
		require.Equal(t, []string{"greeting", "jobs", "piped"}, srv.Keys())
	})
}

func TestBytesThatAreNotTextSurvive(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2, mockserver.WithVirtualClock())
	key, value := "a\xff\x00", "\x00\xfe\n"
	status, out, _ := s.run(value, "set", "--ttl", "1m", key, "-")
	require.Zero(t, status)
	require.Equal(t, `"a\xff\x00"  set`+"\n", out)
	require.Equal(t, []string{key}, srv.Keys())
	_, out, _ = s.run("", "get", "--raw", key)
	require.Equal(t, value, out)
	_, out, _ = s.run("", "get", key)
	require.Contains(t, out, `"a\xff\x00"`)
	require.Contains(t, out, `"\x00\xfe\n"`)
	_, out, _ = s.run("", "get", "--json", key)
	require.Equal(t, `{"key":"a\ufffd\u0000","key_base64":"Yf8A","found":true,"value":"\u0000\ufffd\n","value_base64":"AP4K","ttl_seconds":59.999}`+"\n", out)
	s.prints(0, `""  inserted`+"\n", "insert --ttl 1m  1")
}

func TestOutOfRangeErrorNamesValueSizeThatWouldDo(t *testing.T) {
	t.Parallel()
	s1, _ := shellFor(t, 1)
	s1.fails("insert --ttl 1h k 256", "quota 256 is out of range", "at most 255", "2-byte values (uint16) would do")
	s1.fails("update k +70000", "quota 70000", "4-byte values (uint32) would do")
	s1.fails("insert --ttl 301s k 1", "TTL out of range", "a value size of 2 would do")
	s1.fails("hit --scale 1m --limit 256 k", "Max 256 is out of range", "uint16")
	s1.fails("hit --scale 1h1m1s --limit 5 k", "Scale 1h1m1s is out of range")
	s1.fails("set --ttl 1m k "+strings.Repeat("x", 256), "value is 256 bytes, at most 255")
	s2, _ := shellFor(t, 2)
	s2.fails("insert --ttl 1h k 65536", "quota 65536", "uint32")
	s4, _ := shellFor(t, 4)
	s4.fails("insert --ttl 1h k 4294967296", "uint64")
	s8, _ := shellFor(t, 8)
	s8.prints(0, "k  inserted\n", "insert --ttl 1h k 18446744073709551615")
	s8.fails("insert --ttl 1h k 18446744073709551616", "18446744073709551616")
	s8.fails("query "+strings.Repeat("k", 256), "key is 256 bytes, at most 255")
}

func TestServersAreAddressesOrURL(t *testing.T) {
	a, b := mockserver.RunT(t), mockserver.RunT(t)
	socket := t.TempDir() + "/s"
	c := mockserver.RunT(t, mockserver.WithAddr("unix", socket))
	insert := func(s shell, line string) {
		for i := range 16 {
			s.prints(0, fmt.Sprintf("k%d  inserted\n", i), fmt.Sprintf(line, i))
		}
		purge := []string{"purge", "--servers", s.servers}
		for i := range 16 {
			purge = append(purge, fmt.Sprintf("k%d", i))
		}
		if s.servers == "" {
			purge = append(purge[:1], purge[3:]...)
		}
		status, _, stderr := s.run("", purge...)
		require.Zero(t, status, stderr)
	}
	both := a.Addr() + "," + b.Addr()
	for _, servers := range []string{both, "throttr://" + both, "throttr://" + both + "?max_conns=1", both + "," + "unix://" + socket, "unix://" + socket + "," + both} {
		before := a.Requests(codec.OpInsert)
		insert(shell{t, servers}, "insert --ttl 1h k%d 1")
		require.Greater(t, a.Requests(codec.OpInsert), before+1, servers)
	}
	insert(shell{t, "unix://" + socket}, "insert --ttl 1h k%d 1")
	require.Positive(t, b.Requests(codec.OpInsert))
	require.GreaterOrEqual(t, c.Requests(codec.OpInsert), 16)
	t.Setenv("THROTTR_SERVERS", a.Addr())
	insert(shell{t, ""}, "insert --ttl 1h k%d 1")
	t.Setenv("THROTTR_SERVERS", "nonsense://")
	shell{t, ""}.fails("query k", "nonsense")
	shell{t, ""}.prints(0, "k  inserted\n", "insert --servers "+a.Addr()+" --ttl 1h k 1")
}

func TestValueSizeIsDetectedInOneOrTwoProbes(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, srv := shellFor(t, size)
		s.prints(1, "key     quota        ttl\nnobody      -  not found\n", "query nobody")
		probes := 2
		if size == 2 {
			probes = 1
		}
		require.Equal(t, probes, srv.Requests(codec.OpInsert))
		shell{t, "throttr://" + srv.Addr() + "?lazy=true"}.prints(1, "key     quota        ttl\nnobody      -  not found\n", "query nobody")
	})
}

func TestServersOfDifferentValueSizesAreAnError(t *testing.T) {
	t.Parallel()
	a, b := mockserver.RunT(t, mockserver.WithValueSize(1)), mockserver.RunT(t, mockserver.WithValueSize(4))
	shell{t, a.Addr() + "," + b.Addr()}.fails("query k", a.Addr()+" has values of 1 byte (uint8)", b.Addr()+" of 4 bytes (uint32)", "must have the same")
}

func TestUnreachableServerIsAnError(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1"
	shell{t, addr}.fails("query k", "can't connect to "+addr)
	up := mockserver.RunT(t)
	shell{t, up.Addr() + "," + addr}.fails("query k", "can't connect to "+addr)
	shell{t, "throttr://user:secret@host"}.fails("query k", "credentials")
}

func TestTimeoutEndsCommand(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2)
	srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Minute})
	s.fails("query --timeout 50ms k", "not done after 50ms", "--timeout")
	s.fails("--timeout 50ms hit --scale 1m --limit 1 k", "not done after 50ms")
	srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Delay: time.Minute})
	s.fails("subscribe --timeout 50ms news", "not done after 50ms")
	srv.Inject(mockserver.Fault{Op: codec.OpInsert, Delay: time.Minute})
	s.fails("insert --timeout 50ms --ttl 1m k 1", "not done after 50ms")
	srv.Disconnect()
}

func TestInterruptEndsCommand(t *testing.T) {
	t.Parallel()
	srv := mockserver.RunT(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	require.Equal(t, statusError, run(ctx, []string{"--servers", srv.Addr(), "query", "k"}, nil, &out, &errs))
	require.Equal(t, "throttr query: interrupted\n", errs.String())
}

func TestResultsBeforeErrorArePrinted(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2)
	srv.Inject(mockserver.Fault{Op: codec.OpPurge, Skip: 5, Disconnect: true}) // the probe sends 4
	status, out, stderr := s.run("", "purge", "a", "b")
	require.Equal(t, statusError, status)
	require.NotContains(t, out, "b")
	require.Contains(t, stderr, "throttr purge: ")
}

// full is a writer that always fails.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestFailedWriteIsAnError(t *testing.T) {
	t.Parallel()
	srv := mockserver.RunT(t)
	for _, args := range [][]string{{"query", "k"}, {"--json", "query", "k"}, {"help"}, {"mock", "--addr", "127.0.0.1:0"}} {
		require.Equal(t, statusError, run(t.Context(), append([]string{"--servers", srv.Addr()}, args...), nil, full{}, io.Discard), args)
	}
}

func TestUsageErrorsNameTheMistake(t *testing.T) {
	t.Parallel()
	s := shell{t, "127.0.0.1:1"} // never used
	for line, words := range map[string]string{
		"nonsense":                              `unknown command "nonsense"`,
		"hti":                                   "Did you mean this? hit",
		"hit --nonsense":                        "--nonsense",
		"hit -scale 1m --limit 1 k":             "flags have two dashes",
		"hit k":                                 `required flag(s) "scale", "limit" not set`,
		"hit --scale 1m --limit 1":              "requires at least 1 arg",
		"hit --scale x --limit 1 k":             `invalid argument "x" for "--scale" flag: not a duration such as 60s`,
		"hit --scale 60 --limit 1 k":            `invalid argument "60" for "--scale" flag: a duration needs a unit, such as 60s`,
		"hit --scale 1m --limit -2 k":           `invalid argument "-2" for "--limit" flag`,
		"reset k":                               `"scale" not set`,
		"reset --scale 1.5 k":                   "needs a unit, such as 1.5s",
		"insert k 1":                            `"ttl" not set`,
		"insert --ttl 60 k 1":                   "needs a unit, such as 60s",
		"insert --ttl 1h k":                     "accepts 2 arg(s), received 1",
		"insert --ttl 1h k x":                   `quota "x"`,
		"insert --ttl 1h k 1 2":                 "accepts 2 arg(s), received 3",
		"set --ttl 60 k v":                      "needs a unit, such as 60s",
		"set --ttl 1m k":                        "accepts 2 arg(s), received 1",
		"query":                                 "requires at least 1 arg",
		"query --timeout 5 k":                   "needs a unit, such as 5s",
		"query --timeout -1s k":                 "-1s is less than 0",
		"--timeout 5 query k":                   "needs a unit, such as 5s",
		"update k":                              "accepts 2 arg(s), received 1",
		"update k 3":                            `change "3"`,
		"update k +":                            `change "+"`,
		"update k ++3":                          `change "++3"`,
		"update k =1s":                          `value "1s"`,
		"update --ttl k =1":                     `TTL "1": a duration needs a unit, such as 1s`,
		"update --ttl k =5x":                    `TTL "5x": not a duration`,
		"update k --ttl":                        `change "--ttl"`,
		"purge":                                 "requires at least 1 arg",
		"purge k -3":                            "-- goes before arguments that look like flags",
		"get":                                   "requires at least 1 arg",
		"get --raw a b":                         "accepts 1 arg(s), received 2",
		"mock x":                                `unknown command "x" for "throttr mock"`,
		"mock --service-time 3":                 "needs a unit, such as 3s",
		"mock --addr 127.0.0.1:0 --unix /tmp/s": "[addr unix] were all set",
		"mock --hazard grace":                   `invalid argument "grace" for "--hazard" flag: grace must be formatted as key=value`,
		"mock --hazard grace=no":                "--hazard grace=no is not of the form grace=on or grace=off",
		"mock --hazard graze=on":                `no hazard "graze"`,
		"mock --addr 127.0.0.1:0 --size 3":      "3",
		"mock --addr 127.0.0.1:0 --service-time 1s": "service time is 0 to 1ms, not 1s",
		"mock --slow-creation -1":                   `invalid argument "-1" for "--slow-creation" flag`,
	} {
		s.fails(line, words)
	}
}

func TestFlagsGoAnywhere(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2, mockserver.WithVirtualClock())
	s.prints(0, "jobs  inserted\n", "insert jobs 5 --ttl=1m")
	s.prints(0, `{"key":"jobs","ok":true,"result":"updated"}`+"\n", "--json update jobs -3")
	quota, _ := srv.Counter("jobs")
	require.EqualValues(t, 2, quota)
	s.prints(0, `{"key":"jobs","ok":true,"result":"purged"}`+"\n", "purge jobs --json")
}

func TestArgumentsThatLookLikeFlags(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2)
	s.prints(0, "--json  inserted\n", "insert --ttl 1m -- --json 5")
	s.prints(0, "--json  updated\n", "update -- --json -3")
	quota, _ := srv.Counter("--json")
	require.EqualValues(t, 2, quota)
	s.prints(1, "-3  not found\n", "purge -- -3")
	s.prints(1, "a   not found\n-3  not found\n", "purge a -- -3")
}
