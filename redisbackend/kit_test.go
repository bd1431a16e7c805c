package redisbackend_test

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"net"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/testkit"
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

func mustDelete(t testing.TB, b *rediswindow.Backend, key string, scales ...time.Duration) int {
	t.Helper()
	n, err := b.Delete(t.Context(), key, scales...)
	noError(t, err)
	return n
}

// set sets a clock, which may go back.
func set(clock backendtest.Clock, now time.Time) { clock.Advance(now.Sub(clock.Now())) }

// limitOf returns a limit without a name.
func limitOf(a window.Algorithm, scale time.Duration, limit uint64) window.Limit {
	return window.Limit{Max: limit, Scale: scale, Algorithm: a}
}

// rolling are the algorithms whose refused hits do not count.
var rolling = []window.Algorithm{window.TokenBucket, window.SlidingWindow, window.SlidingLog}

// algorithms are all but that of calendar windows.
var algorithms = append([]window.Algorithm{window.FixedWindow, window.AlignedWindow}, rolling...)

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
	r := client.Do(context.Background(), client.B().Arbitrary(args[0]).Args(args[1:]...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", args, err)
	}
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
