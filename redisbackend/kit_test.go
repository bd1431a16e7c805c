package redisbackend_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"net"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

var (
	noError = testkit.NoError
	expect  = testkit.Expect
)

// must makes a call that must succeed.
func must[R any](t testing.TB, f func(context.Context, string, window.Limit, uint64) (R, error), key string, l window.Limit, n uint64) R {
	t.Helper()
	r, err := f(t.Context(), key, l, n)
	noError(t, err)
	return r
}

// errorOf returns the error of a call.
func errorOf[R any](_ R, err error) error { return err }

// set sets a clock, which may go back.
func set(clock backendtest.Clock, now time.Time) { clock.Advance(now.Sub(clock.Now())) }

// limitOf returns a limit without a name.
func limitOf(a window.Algorithm, scale time.Duration, limit uint64) window.Limit {
	return window.Limit{Max: limit, Scale: scale, Algorithm: a}
}

// algorithms are all but that of calendar windows.
var algorithms = []window.Algorithm{
	window.FixedWindow, window.AlignedWindow, window.TokenBucket, window.SlidingWindow, window.SlidingLog,
}

// each runs a test for each of the algorithms, on an empty server.
func each(t *testing.T, f func(t *testing.T, s *testkit.Redis, a window.Algorithm)) {
	s := testkit.StartRedis(t)
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			s.Must(t, "FLUSHALL")
			f(t, s, a)
		})
	}
}

// plainClient is a [rediswindow.Client] of rueidis that sends scripts in full, and can't subscribe.
type plainClient struct{ client rueidis.Client }

func (plainClient) EvalSHA(context.Context, string, []string, []string) (string, error) {
	return "", errors.New("NOSCRIPT")
}

func (c plainClient) Eval(ctx context.Context, script string, keys, args []string) (string, error) {
	eval := c.client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	return c.client.Do(ctx, eval).ToString()
}

func (plainClient) Scan(context.Context, string) iter.Seq2[string, error] { return nil }
func (plainClient) Cluster() (bool, error)                                { return false, nil }
func (plainClient) Punctual() bool                                        { return false }
func (plainClient) Name() string                                          { return "redis" }

// await waits until something is true.
func await(t *testing.T, failure string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		expect(t, time.Since(start) < patience, "%s", failure)
	}
}

// patience is how long clients wait for a response: a busy machine may stop a server for seconds.
const patience = time.Minute

// connect returns a client of a server, or of its cluster.
func connect(t testing.TB, s *testkit.Redis, opts ...func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	option := rueidis.ClientOption{InitAddress: []string{s.Addr}, ConnWriteTimeout: patience}
	if s.Network == "unix" {
		option.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return s.Dial(ctx, d)
		}
	}
	for _, opt := range opts {
		opt(&option)
	}
	return connectTo(t, option)
}

// onCluster returns a client of a cluster.
func onCluster(t testing.TB, c *testkit.Cluster) rueidis.Client {
	t.Helper()
	return connectTo(t, rueidis.ClientOption{InitAddress: c.Addrs()})
}

// connectTo returns a client that is closed at the end of the test.
func connectTo(t testing.TB, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	noError(t, err)
	t.Cleanup(client.Close)
	return client
}

// redis sends a command that must not fail.
func redis(t testing.TB, client rueidis.Client, args ...string) rueidis.RedisResult {
	t.Helper()
	r := client.Do(context.Background(), client.B().Arbitrary(args...).Build())
	noError(t, r.Error())
	return r
}

// timesCalled returns how often a server has executed a command.
func timesCalled(t testing.TB, s *testkit.Redis, command string) int {
	m := regexp.MustCompile("cmdstat_" + command + `:calls=(\d+)`).FindStringSubmatch(s.Must(t, "INFO", "commandstats"))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	noError(t, err)
	return n
}

// newInFlight returns a limiter on a backend, both of which end with the test.
func newInFlight(t testing.TB, b *rediswindow.Backend, opts ...inflight.Option) *inflight.Limiter {
	opts = append([]inflight.Option{inflight.WithLogger(nil), inflight.WithTimeout(10 * time.Second)}, opts...) // a busy machine
	l := inflight.New(b, opts...)
	t.Cleanup(func() {
		l.Close()
		b.Close()
	})
	return l
}

// twoStrict returns two limiters, as in processes of their own.
func twoStrict(t testing.TB, connect func() rueidis.Client) (one, two *inflight.Limiter) {
	one = newInFlight(t, redisbackend.New(connect()), inflight.WithStrict())
	two = newInFlight(t, redisbackend.New(connect()), inflight.WithStrict())
	return one, two
}

// acquired acquires places of a key, as soon as there are any.
func acquired(t testing.TB, l *inflight.Limiter, key string, limit inflight.Limit, n uint64) *inflight.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h, err := l.Acquire(ctx, key, limit, n)
	noError(t, err)
	return h
}

// neverTwo requires that nobody else gets the place of h, for up to half a lease. Then h is released, and somebody
// else gets it.
func neverTwo(t *testing.T, h *inflight.Hold, other *inflight.Limiter, limit inflight.Limit) {
	t.Helper()
	for begun := time.Now(); h.Valid() && time.Since(begun) < limit.Lease/2; time.Sleep(10 * time.Millisecond) {
		second, granted, _ := other.TryAcquire(context.Background(), "k", limit, 1) // its client may still look for the server
		expect(t, !granted || !h.Valid(), "two places of one are held")
		second.Release()
	}
	h.Release()
	acquired(t, other, "k", limit, 1).Release()
}

// ownerOf returns which primary has the slot of the key "k".
func ownerOf(t *testing.T, c *testkit.Cluster) int {
	t.Helper()
	owner := slices.IndexFunc(c.Primaries, func(s *testkit.Redis) bool {
		_, err := s.Do("HLEN", "{k:k}")
		return err == nil // and not MOVED
	})
	expect(t, owner >= 0, "no primary has the slot")
	return owner
}

// claimed is the sequence number of the last claim that exchange has made.
var claimed atomic.Uint64

// exchange makes a claim, which must succeed. By default, it is one of the process "p" on the key "k".
func exchange(t testing.TB, b *rediswindow.Backend, c window.Claim) window.Places {
	t.Helper()
	c.Key = cmp.Or(c.Key, "k")
	c.Process = cmp.Or(c.Process, "p")
	c.Seq = claimed.Add(1)
	places := make([]window.Places, 1)
	noError(t, b.Exchange(context.Background(), []window.Claim{c}, places))
	noError(t, places[0].Err)
	return places[0]
}
