package testkit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

// Minute is a TTL that no test outlives.
var Minute = codec.TTL[uint16]{Amount: 60, Unit: codec.Seconds}

// Connect returns a client of srv that is closed at the end of the test.
func Connect[T codec.Value](t testing.TB, srv *mockserver.Server, cfg throttr.Config) *throttr.Client[T] {
	t.Helper()
	cfg.Servers = []string{srv.Addr()}
	return Client[T](t, cfg)
}

// Client returns a client that is closed at the end of the test.
func Client[T codec.Value](t testing.TB, cfg throttr.Config) *throttr.Client[T] {
	t.Helper()
	client, err := throttr.Connect[T](context.Background(), cfg)
	NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// InMemory starts a server that is reached by srv.Dial alone, so that the test can run in a
// bubble of testing/synctest. TTL units are strays if records are purged meanwhile (H19).
func InMemory(t testing.TB, opts ...mockserver.Option) *mockserver.Server {
	t.Helper()
	all := []mockserver.Option{
		mockserver.WithHazard(mockserver.StrayUnit, true), mockserver.WithAddr("memory", "memory:1"),
	}
	return mockserver.RunT(t, append(all, opts...)...)
}

// Start starts a server in memory, and returns it with a client of it.
func Start[T codec.Value](
	t testing.TB, cfg throttr.Config, opts ...mockserver.Option,
) (*mockserver.Server, *throttr.Client[T]) {
	t.Helper()
	srv := InMemory(t, append([]mockserver.Option{mockserver.WithValueSize(codec.Size[T]())}, opts...)...)
	return srv, Connect[T](t, srv, Over(srv, cfg))
}

// Over returns cfg with a Dial that connects to srv in memory.
func Over(srv *mockserver.Server, cfg throttr.Config) throttr.Config {
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) }
	return cfg
}

// Servers are servers in memory, each with an address of its own.
type Servers []*mockserver.Server

// Several starts n servers.
func Several(t testing.TB, n int, opts ...mockserver.Option) (all Servers) {
	t.Helper()
	for i := range n {
		all = append(all, InMemory(t, append(opts, mockserver.WithAddr("memory", fmt.Sprintf("memory:%d", i+1)))...))
	}
	return all
}

// At returns the server with an address, which must be that of one of them.
func (s Servers) At(addr string) *mockserver.Server {
	return s[slices.IndexFunc(s, func(srv *mockserver.Server) bool { return srv.Addr() == addr })]
}

// Over returns cfg with the addresses of the servers, and a Dial that connects to them.
func (s Servers) Over(cfg throttr.Config) throttr.Config {
	cfg.Servers = nil
	for _, srv := range s {
		cfg.Servers = append(cfg.Servers, srv.Addr())
	}
	cfg.Dial = func(ctx context.Context, _, addr string) (net.Conn, error) { return s.At(addr).Dial(ctx) }
	return cfg
}

// Limiter returns a rate limiter with a client of its own, which does not retry.
func Limiter[T codec.Value](t *testing.T, srv *mockserver.Server, opts ...throttr.BackendOption) *throttr.RateLimit {
	t.Helper()
	return NewRateLimit(Connect[T](t, srv, Over(srv, throttr.Config{MaxRetries: -1})).Backend(opts...))
}

// Hits hits n times, one after the other, and returns how many hits were allowed.
func Hits(t *testing.T, l *throttr.RateLimit, n int, key string, scale time.Duration, limit uint64) (allowed int) {
	t.Helper()
	for range n {
		res, err := l.Hit(t.Context(), key, scale, limit)
		NoError(t, err)
		if res.Allowed {
			allowed++
		}
	}
	return allowed
}

// Subscribe returns a subscription that is closed at the end of the test.
func Subscribe[T codec.Value](t testing.TB, client *throttr.Client[T], channel string,
	opts ...pubsub.Option) *pubsub.Subscription {
	t.Helper()
	sub, err := client.Subscribe(t.Context(), channel, opts...)
	NoError(t, err)
	t.Cleanup(func() { sub.Close() })
	return sub
}

// Collect returns what an iterator yields, and the error, which must come last.
func Collect[E any](t testing.TB, seq iter.Seq2[E, error]) (all []E, last error) {
	t.Helper()
	for e, err := range seq {
		if last != nil {
			t.Fatal("an error is not the last that is yielded: ", last)
		}
		last = err
		if err == nil {
			all = append(all, e)
		} else if v := reflect.ValueOf(&e).Elem(); !v.IsZero() {
			t.Fatalf("%v is yielded with %v", e, err)
		}
	}
	return all, last
}

// Next returns the next message of sub. It fails the test if none comes within a minute.
func Next(t testing.TB, sub *pubsub.Subscription) pubsub.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := sub.Next(ctx)
	NoError(t, err)
	return m
}

// NewRateLimit returns a RateLimit that waits for its backend as long as the backend does: in tests of what
// happens to windows while servers are slow or away, no circuit breaker must decide instead.
func NewRateLimit(b throttr.Backend, opts ...throttr.Option) *throttr.RateLimit {
	return throttr.NewRateLimit(b,
		append([]throttr.Option{throttr.WithTimeout(time.Hour), throttr.WithBreaker(math.MaxInt32, 0)}, opts...)...)
}

// Encode returns the bytes of a frame.
func Encode(t testing.TB, f codec.Frame) []byte {
	t.Helper()
	b, err := f.AppendBinary(nil)
	NoError(t, err)
	return b
}

// SafeToRetry reports whether err is of a request that was not sent.
func SafeToRetry(err error) bool {
	var failed *throttr.RequestError
	return errors.As(err, &failed) && failed.SafeToRetry()
}

// Bubble runs a subtest in a bubble of testing/synctest.
func Bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// ForEachSize runs a test for each value size, each in a bubble.
func ForEachSize(t *testing.T, tests ...func(*testing.T)) {
	for i, test := range tests {
		t.Run(fmt.Sprintf("uint%d", 8<<i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
}

// Together calls f n times at the same time, and returns a function that waits for the ends of all. The test fails if a
// call returns an error.
func Together(t testing.TB, n int, f func(i int) error) (wait func()) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := f(i); err != nil {
				t.Error(err)
			}
		})
	}
	return all.Wait
}
