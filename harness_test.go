package throttr_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// minute is a TTL that no test outlives.
var minute = codec.TTL[uint16]{Amount: 60, Unit: codec.Seconds}

// inMemory starts a server that is reached by srv.Dial alone, so that the test can run
// in a bubble of synctest.
func inMemory(t testing.TB, opts ...mockserver.Option) *mockserver.Server {
	t.Helper()
	return mockserver.RunT(t, append(opts, mockserver.WithAddr("memory", "memory:1"))...)
}

// over returns cfg with a Dial that connects to srv in memory.
func over(srv *mockserver.Server, cfg throttr.Config) throttr.Config {
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) }
	return cfg
}

// once is a Config without retries, for tests that look at each failure.
func once(cfg throttr.Config) throttr.Config {
	cfg.MaxRetries = -1
	return cfg
}

// stacks returns those of all goroutines that run code of this module, tests aside.
func stacks() []string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var own []string
	for _, s := range strings.Split(string(buf), "\n\n") {
		if strings.Contains(s, "throttr-go/throttr.(*") || strings.Contains(s, "jackc/puddle") {
			own = append(own, s)
		}
	}
	return own
}

// requireNoGoroutines fails the test if goroutines of a client outlive it. In a bubble of
// synctest it is not needed: the bubble waits for all.
func requireNoGoroutines(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return len(stacks()) == 0 }, 5*time.Second, time.Millisecond, "goroutines are left")
}

// statsOf returns the only server's part of the client's statistics.
func statsOf[T codec.Value](client *throttr.Client[T]) throttr.ServerStats {
	return client.Stats().Servers[0]
}

// pass lets the clock of a bubble move on.
func pass(d time.Duration) { <-time.After(d) }
