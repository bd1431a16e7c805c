// Package interop_test is a suite for live servers:
//
//	THROTTR_SERVERS=127.0.0.1:9000,127.0.0.1:9001 go test -run TestInteropLiveServers -v ./internal/systemtest/interop
//
// It finds out the value size of each server. It can share a server with other clients: its keys and channels are
// random, it removes its records, none of which expires. It lists all keys of the server, which takes long if there are
// many.
//
// The suite always runs against mock servers as well.
package interop_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

func TestInteropLiveServers(t *testing.T) {
	servers := os.Getenv("THROTTR_SERVERS")
	if servers == "" {
		t.Skip("THROTTR_SERVERS is not set. It is a list of live servers, host:port, separated by commas.")
	}
	for _, addr := range strings.Split(servers, ",") {
		t.Run(addr, func(t *testing.T) {
			size := valueSize(t, addr)
			t.Logf("the value size of %s is %d", addr, size)
			runSuite(t, size, addr, true)
		})
	}
}

// valueSize returns the value size of a server.
func valueSize(t *testing.T, addr string) int {
	t.Helper()
	client, err := throttr.Connect[uint16](t.Context(), throttr.Config{Servers: []string{addr}})
	var other *throttr.ValueSizeError
	if errors.As(err, &other) {
		return other.Actual
	}
	require.NoError(t, err)
	require.NoError(t, client.Close())
	return codec.Size[uint16]()
}

func TestInteropMockServers(t *testing.T) {
	for _, size := range []int{1, 2, 4, 8} {
		t.Run(fmt.Sprintf("uint%d", 8*size), func(t *testing.T) {
			t.Parallel()
			srv := mockserver.RunT(t, mockserver.WithValueSize(size), mockserver.WithHazard(mockserver.LateExpiry, true))
			t.Run("suite", func(t *testing.T) { runSuite(t, size, srv.Addr(), false) })
			require.Empty(t, testkit.Keys(srv), "records that were not removed")
			require.Zero(t, srv.Expired(), "records that expired")
		})
	}
}

// runSuite runs the suite against a server whose values have size bytes. Live servers get all of it.
func runSuite(t *testing.T, size int, addr string, live bool) {
	suites := map[int]func(*testing.T, string, bool){
		1: runSuiteOf[uint8], 2: runSuiteOf[uint16], 4: runSuiteOf[uint32], 8: runSuiteOf[uint64],
	}
	require.Contains(t, suites, size, "the value size of the server")
	suites[size](t, addr, live)
}

func runSuiteOf[T codec.Value](t *testing.T, addr string, live bool) {
	for name, test := range map[string]func(*testing.T, *suite[T]){
		"counters": testCounters[T], "buffers": testBuffers[T], "TTLs": testTTLs[T], "longest frame": testLongestFrame[T],
		"wrong value size": testWrongSize[T], "inspection": testInspection[T], "connections": testConnections[T],
		"subscriptions": testSubscriptions[T], "windows that clients share": testSharedWindows[T],
	} {
		t.Run(name, func(t *testing.T) {
			if name == "windows that clients share" && !live && !testkit.Thorough() {
				t.Skip("waits for windows to end: runs with THROTTR_SLOW_TESTS=1")
			}
			test(t, newSuite[T](t, addr))
		})
	}
}

// suite is what each test of the suite starts with.
type suite[T codec.Value] struct {
	addr   string
	client *throttr.Client[T]
	run    string // a random prefix of keys and channels
	ctx    context.Context
	ttl    codec.TTL[T] // longer than any test
}

func newSuite[T codec.Value](t *testing.T, addr string) *suite[T] {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	s := &suite[T]{addr: addr, run: "interop:" + rand.Text() + ":", ctx: ctx}
	s.ttl = codec.TTL[T]{Amount: 200, Unit: codec.Seconds}
	s.client = testkit.Client[T](t, throttr.Config{Servers: []string{addr}})
	return s
}

// key returns a key that no other client uses, and that is purged at the end of the test.
func (s *suite[T]) key(t *testing.T, name string) string {
	key := s.run + name
	t.Cleanup(func() {
		if _, err := s.client.Purge(s.ctx, key); err != nil {
			t.Errorf("purge: %v", err)
		}
	})
	return key
}

// quota returns the counter under key.
func (s *suite[T]) quota(t *testing.T, key string) T {
	t.Helper()
	c, ok, err := s.client.Query(s.ctx, key)
	succeeds(t)(ok, err)
	return c.Quota
}

// succeeds returns a function that requires that the status of a response is success.
func succeeds(t *testing.T) func(ok bool, err error) { return status(t, true) }

// fails returns a function that requires that the status of a response is failure.
func fails(t *testing.T) func(ok bool, err error) { return status(t, false) }

func status(t *testing.T, want bool) func(ok bool, err error) {
	return func(ok bool, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, ok, "the status")
	}
}

// found leaves out the value of a response.
func found[V any](_ V, ok bool, err error) (bool, error) { return ok, err }
