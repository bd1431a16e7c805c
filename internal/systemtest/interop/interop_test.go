package interop_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// The interop suite runs against live servers, each for its own value size:
//
//	THROTTR_SERVERS=127.0.0.1:9000,127.0.0.1:9001 go test -run TestInterop -v .
//
// Its keys and channels are random, it removes what it has made, and it lets nothing expire,
// so that it can share a server. One with very many records it holds up a little, as it
// lists them. Without live servers it runs against the mock server, so that
// the suite itself is tried in every run of the tests.

func TestInteropOnLiveServers(t *testing.T) {
	servers := os.Getenv("THROTTR_SERVERS")
	if servers == "" {
		t.Skip("THROTTR_SERVERS is not set: there are no live servers, host:port and separated by commas, to test against")
	}
	for _, addr := range strings.Split(servers, ",") {
		t.Run(addr, func(t *testing.T) {
			size, err := throttr.ProbeValueSize(t.Context(), throttr.Config{}, addr)
			require.NoError(t, err)
			t.Logf("values of %s are %d bytes wide", addr, size)
			testInterop(t, size, addr)
		})
	}
}

func TestInteropOnTheMockServer(t *testing.T) {
	for _, size := range []int{1, 2, 4, 8} {
		t.Run(fmt.Sprintf("uint%d", 8*size), func(t *testing.T) {
			t.Parallel()
			srv := mockserver.RunT(t, mockserver.WithValueSize(size), mockserver.WithHazard(mockserver.LateExpiry, true))
			t.Run("suite", func(t *testing.T) { testInterop(t, size, srv.Addr()) })
			require.Empty(t, srv.Keys(), "what the suite has left behind")
			require.Zero(t, srv.Expired(), "what the suite has let expire")
		})
	}
}

func testInterop(t *testing.T, size int, addr string) {
	switch size {
	case 1:
		runInterop[uint8](t, addr)
	case 2:
		runInterop[uint16](t, addr)
	case 4:
		runInterop[uint32](t, addr)
	case 8:
		runInterop[uint64](t, addr)
	default:
		t.Fatalf("a server has values of %d bytes", size)
	}
}

// runInterop runs the suite against one server.
func runInterop[T codec.Value](t *testing.T, addr string) {
	for _, part := range []struct {
		name string
		test func(*testing.T, *interop[T])
	}{
		{"counters", interopCounters[T]},
		{"buffers", interopBuffers[T]},
		{"TTL units", interopUnits[T]},
		{"moving a TTL", interopMovedTTL[T]},
		{"wrap", interopWrap[T]},
		{"keys", interopKeys[T]},
		{"the longest frame", interopLongestFrame[T]},
		{"batch", interopBatch[T]},
		{"large batch", interopLargeBatch[T]},
		{"pipelining", interopPipelining[T]},
		{"list", interopList[T]},
		{"stats", interopStats[T]},
		{"info", interopInfo[T]},
		{"connections", interopConnections[T]},
		{"subscriptions", interopSubscriptions[T]},
		{"own channel", interopOwnChannel[T]},
		{"windows", interopWindows[T]},
		{"windows of several clients", interopSharedWindows[T]},
		{"Set and Reset", interopSetAndReset[T]},
		{"a wrong value size", interopWrongSize[T]},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, newInterop[T](t, addr)) })
	}
}

// interop is what a part of the suite works with.
type interop[T codec.Value] struct {
	addr   string
	client *throttr.Client[T]
	run    string // random
	ctx    context.Context
	ttl    codec.TTL[T] // long enough for anything here
}

func newInterop[T codec.Value](t *testing.T, addr string) *interop[T] {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	in := &interop[T]{addr: addr, run: "interop:" + rand.Text() + ":", ctx: ctx}
	in.ttl = codec.TTL[T]{Amount: 200, Unit: codec.Seconds}
	in.client = in.connect(t)
	return in
}

// connect makes a client that is closed when the test ends.
func (in *interop[T]) connect(t *testing.T) *throttr.Client[T] {
	t.Helper()
	client, err := throttr.Connect[T](in.ctx, throttr.Config{Servers: []string{in.addr}})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// key returns a key that nobody else has, and that is removed when the test ends.
func (in *interop[T]) key(t *testing.T, name string) string {
	key := in.run + name
	t.Cleanup(func() {
		if _, err := in.client.Purge(in.ctx, key); err != nil {
			t.Errorf("purge: %v", err)
		}
	})
	return key
}

// requireOK checks for an answer of success.
func requireOK(t *testing.T, ok bool, err error) {
	t.Helper()
	require.NoError(t, err)
	require.True(t, ok, "the server answers failure")
}

// requireFailure checks for an answer of failure.
func requireFailure(t *testing.T, ok bool, err error) {
	t.Helper()
	require.NoError(t, err)
	require.False(t, ok, "the server answers success")
}

// quota returns the counter under key.
func (in *interop[T]) quota(t *testing.T, key string) T {
	t.Helper()
	c, ok, err := in.client.Query(in.ctx, key)
	requireOK(t, ok, err)
	return c.Quota
}
