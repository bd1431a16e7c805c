package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

// objects parses JSON, one object per line.
func objects(t *testing.T, out string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out) {
		var o map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &o), line)
		all = append(all, o)
	}
	return all
}

// yes runs a command that must succeed, and returns its output.
func (s shell) yes(line string) string {
	s.t.Helper()
	status, out, stderr := s.run("", strings.Split(line, " ")...)
	require.Zero(s.t, status, line+": "+stderr)
	require.Empty(s.t, stderr, line)
	return out
}

func TestListOfSeveralServersNamesServers(t *testing.T) {
	t.Parallel()
	a, b := mockserver.RunT(t), mockserver.RunT(t)
	s := shell{t, a.Addr() + "," + b.Addr()}
	for i := range 20 {
		s.yes(fmt.Sprintf("insert --ttl 1h k%d 1", i))
	}
	for _, srv := range []*mockserver.Server{a, b} {
		testkit.Subscribe(t, testkit.Connect[uint16](t, srv, throttr.Config{}), pubsub.All)
	}
	for _, line := range []string{"list", "stat", "channels", "connections"} {
		out := s.yes(line)
		require.True(t, strings.HasPrefix(out, a.Addr()+":\n"), out)
		_, ofB, found := strings.Cut(out, "\n"+b.Addr()+":\n")
		require.True(t, found, out)
		heading, _, _ := strings.Cut(strings.TrimPrefix(out, a.Addr()+":\n"), "\n")
		require.Equal(t, strings.Fields(heading), strings.Fields(strings.SplitN(ofB, "\n", 2)[0]), "each server has a table")
	}
	require.Equal(t, 20+2*2, strings.Count(s.yes("list"), "\n"))
	require.Len(t, objects(t, s.yes("list --json")), 20)
	require.Len(t, objects(t, s.yes("info --json")), 2)
	require.Len(t, objects(t, s.yes("whoami --json")), 2)
}

func TestLongListIsComplete(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 4)
	const n = 5000
	for i := range n {
		srv.Set(fmt.Sprint("key", i), 1, 1<<40)
	}
	require.Equal(t, n+1, strings.Count(s.yes("list"), "\n"))
	require.Len(t, objects(t, s.yes("list --json")), n)
}

func TestIncompleteListIsAnError(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2)
	srv.Set("k", 1, 1<<40)
	srv.Inject(mockserver.Fault{Op: codec.OpList, Disconnect: true})
	s.fails("list", "LIST")
}

func TestStatPrintsReadsAndWrites(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, srv := shellFor(t, size, mockserver.WithVirtualClock())
		s.yes("insert --ttl 1h jobs 5")
		s.yes("query jobs jobs jobs")
		s.yes("update jobs +1")
		srv.Advance(60_000_000_001)
		s.prints(1, `
reads  writes  reads/min  writes/min  key
    4       2          4           2  jobs
    -       -          -           -  nobody  not found
`, "stat jobs nobody")
		s.prints(0, `
reads  writes  reads/min  writes/min  key
    4       2          4           2  jobs
`, "stat")
		s.prints(1, `{"key":"jobs","found":true,"reads":4,"writes":2,"reads_per_minute":4,"writes_per_minute":2}
{"key":"nobody","found":false}
`, "stat --json jobs nobody")
		s.prints(0, `{"server":"`+s.servers+`","key":"jobs","found":true,"reads":4,"writes":2,"reads_per_minute":4,"writes_per_minute":2}
`, "stat --json")
	})
}

func TestInfoPrintsFigures(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, _ := shellFor(t, size, mockserver.WithVirtualClock())
		s.yes("insert --ttl 1h jobs 5")
		s.yes("set --ttl 1h greeting hello")
		out := s.yes("info")
		for _, row := range []string{
			`server +` + s.servers, `version +\S+`, `time +2030-01-01T00:00:00Z`, `running since +2030-01-01T00:00:00Z`, `parked +no`,
			`keys +2`, `counters +1`, `buffers +1`, `buffer bytes +5`, `requests +total  per minute`, `insert +[1-9]\d* +\d+`, `set +1 +0`, `read bytes +\d+ +\d+`,
		} {
			require.Regexp(t, `(?m)^`+row+`$`, out)
		}
		list := objects(t, s.yes("info --json"))
		require.Len(t, list, 1)
		require.Equal(t, s.servers, list[0]["server"])
		require.EqualValues(t, 2, list[0]["keys"])
		requests := list[0]["requests"].(map[string]any)
		require.Len(t, requests, 19)
		require.Equal(t, map[string]any{"total": 1.0, "per_minute": 0.0}, requests["set"])
	})
}

func TestInfoTellsWhetherAServerIsParked(t *testing.T) {
	s, srv := shellFor(t, 2)
	s.servers = "throttr://" + srv.Addr() + "?parking=always"
	require.Regexp(t, `(?m)^parked +yes$`, s.yes("info"))
	s.servers = srv.Addr()
	require.Equal(t, true, objects(t, s.yes("info --json"))[0]["parked"])
}

// docs/servers.md has manifests that run this command, and restart the server if its status is not 0.
func TestWhoAmIIsALivenessProbe(t *testing.T) {
	for name, c := range map[string]struct {
		fail   func(t *testing.T, srv *mockserver.Server)
		status int
		took   time.Duration
		stderr string
	}{
		"healthy": {func(*testing.T, *mockserver.Server) {}, statusOK, 0, ""},
		"slow": {func(_ *testing.T, srv *mockserver.Server) {
			srv.Inject(mockserver.Fault{Op: codec.OpWhoAmI, Delay: 500 * time.Millisecond}) // and once for the handshake
		}, statusOK, time.Second, ""},
		"down":      {func(_ *testing.T, srv *mockserver.Server) { srv.Refuse(true) }, statusError, 0, "can't connect to memory:1"},
		"locked up": {lockUp, statusError, 2250 * time.Millisecond, "not done after 2s, see --timeout"},
		"restarted": {func(t *testing.T, srv *mockserver.Server) { lockUp(t, srv); require.NoError(t, srv.Restart(false)) }, statusOK, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, err := mockserver.Start(mockserver.WithAddr("memory", "memory:1"), mockserver.WithRealCollector())
				require.NoError(t, err)
				defer srv.Close()
				c.fail(t, srv)
				dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) }
				g := &globals{servers: srv.Addr(), timeout: defaultTimeout, dial: dial}
				var stdout, stderr strings.Builder
				start := time.Now()
				status := runWith(t.Context(), g, []string{"whoami", "--timeout", "2s"}, nil, &stdout, &stderr)
				require.Equal(t, c.status, status, stderr.String())
				require.Equal(t, c.took, time.Since(start))
				require.Contains(t, stderr.String(), c.stderr)
				require.Equal(t, c.status == statusOK, strings.Contains(stdout.String(), "id"))
			})
		})
	}
}

// lockUp locks a server up: records expire within microseconds of each other.
func lockUp(t *testing.T, srv *mockserver.Server) {
	t.Helper()
	for i := range 20 {
		srv.Set(fmt.Sprint("twin:", i), 1, 20*time.Second)
		time.Sleep(time.Microsecond)
	}
	time.Sleep(40 * time.Second)
	require.True(t, srv.LockedUp())
}

func TestConnectionsAreListed(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, srv := shellFor(t, size)
		other, err := net.Dial("tcp", srv.Addr())
		require.NoError(t, err)
		defer other.Close()
		_, err = other.Write([]byte{byte(codec.OpWhoAmI)})
		require.NoError(t, err)
		response := make([]byte, 17)
		_, err = other.Read(response)
		require.NoError(t, err)
		id := fmt.Sprintf("%x", response[1:])

		out := s.yes("connections")
		require.Regexp(t, `^id +address +age  requests\n`, out)
		row := id + `  ` + regexp.QuoteMeta(other.LocalAddr().String()) + ` +\d+s +1`
		require.Regexp(t, `(?m)^`+row+`$`, out)

		out = s.yes("connections " + id)
		require.Contains(t, out, id)
		require.Regexp(t, `(?m)^whoami +1$`, out)
		list := objects(t, s.yes("connections --json "+id))
		require.Len(t, list, 1)
		require.Equal(t, other.LocalAddr().String(), list[0]["address"])
		require.Len(t, list[0]["requests"], 18)
		require.GreaterOrEqual(t, len(objects(t, s.yes("connections --json"))), 2)

		missing := strings.Repeat("0", 32)
		s.prints(1, missing+"  not found\n", "connections "+missing)
		s.prints(1, `{"id":"`+missing+`","found":false}`+"\n", "connections --json "+missing)
		s.fails("connections 123", `id "123"`)
	})
}

func TestWhoAmIPrintsID(t *testing.T) {
	t.Parallel()
	s, _ := shellFor(t, 2)
	require.Regexp(t, `^server +id\n127.0.0.1:\d+  [0-9a-f]{32}\n$`, s.yes("whoami"))
	require.Regexp(t, `^\{"server":"127.0.0.1:\d+","id":"[0-9a-f]{32}"\}\n$`, s.yes("whoami --json"))
	socket, _ := shellFor(t, 2, mockserver.WithAddr("unix", t.TempDir()+"/s"))
	require.Contains(t, socket.yes("connections"), "  unix  ")
}

func TestPublishReachesSubscribers(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, srv := shellFor(t, size)
		s.prints(1, "news  nobody is subscribed\n", "publish news hello")
		s.prints(1, `{"channel":"news","ok":false,"result":"nobody is subscribed"}`+"\n", "publish --json news hello")
		s.prints(1, `
id      age  read bytes  write bytes  channel
nobody    -           -            -  news
`, "channels news")
		s.prints(1, `{"channel":"news","found":false}`+"\n", "channels --json news")

		conn, err := net.Dial("tcp", srv.Addr())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write(append([]byte{byte(codec.OpSubscribe), 4}, "news"...))
		require.NoError(t, err)
		status := make([]byte, 1)
		_, err = conn.Read(status)
		require.NoError(t, err)
		require.Equal(t, []byte{1}, status)

		s.prints(0, "news  published\n", "publish news hello")
		got := make([]byte, 64)
		n, err := conn.Read(got)
		require.NoError(t, err)
		require.Contains(t, string(got[:n]), "newshello")
		require.Regexp(t, `(?m)^ +1 +5 +\d+  news$`, s.yes("channels"))
		require.Regexp(t, `(?m)^[0-9a-f]{32} +\d+s +\d+ +\d+  news$`, s.yes("channels news"))
		list := objects(t, s.yes("channels --json news"))
		require.Len(t, list, 1)
		require.Contains(t, list[0], "write_bytes")
	})
}
