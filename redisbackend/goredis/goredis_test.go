package goredis_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend/goredis"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// The client logs every attempt to connect that fails.
func init() { logging.Disable() }

// patience is how long clients wait for a response: a busy machine may stop a server for seconds.
const patience = time.Minute

var perHour = window.Limit{Max: 10, Scale: time.Hour, Algorithm: window.FixedWindow}

var (
	noError = testkit.NoError
	expect  = testkit.Expect
)

// hit hits the key "k".
func hit(t *testing.T, b window.Backend) (window.Window, error) {
	return b.Hit(t.Context(), "k", perHour, 1)
}

// connect returns a client that is closed at the end of the test.
func connect(t *testing.T, options *redis.Options) *redis.Client {
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

func TestBackendOnAServerConforms(t *testing.T) {
	s := testkit.StartRedis(t)
	one, two := connect(t, &redis.Options{Addr: s.Addr, ReadTimeout: patience}), connect(t, &redis.Options{Addr: s.Addr, ReadTimeout: patience})
	testkit.Conform(t, func(opts ...rediswindow.Option) (b, second *rediswindow.Backend) {
		return goredis.New(one, opts...), goredis.New(two, opts...)
	})
}

// The second client is one that embeds that of a cluster.
func TestBackendOnAClusterConforms(t *testing.T) {
	options := &redis.ClusterOptions{Addrs: testkit.StartCluster(t, 3, 3).Addrs(), ReadTimeout: patience}
	one, two := redis.NewClusterClient(options), redis.NewClusterClient(options)
	t.Cleanup(func() {
		one.Close()
		two.Close()
	})
	testkit.Conform(t, func(opts ...rediswindow.Option) (b, second *rediswindow.Backend) {
		return goredis.New(one, opts...), goredis.New(struct{ *redis.ClusterClient }{two}, opts...)
	})
	for _, err := range goredis.New(struct{ redis.UniversalClient }{two}).List(t.Context()) {
		expect(t, errors.Is(err, window.ErrUnsupported), "one of the primaries is listed: %v", err)
	}
	stats := goredis.New(one).Stats().Stores
	expect(t, len(stats) == 1 && stats[0].Name == options.Addrs[0], "%+v", stats)
}

func TestAClientOfAClusterBehindASentinel(t *testing.T) {
	sentinel := testkit.StartSentinel(t, testkit.StartRedis(t))
	client := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: testkit.SentinelName, SentinelAddrs: []string{sentinel.Addr}})
	defer client.Close()
	b := goredis.New(client)
	_, err := hit(t, b)
	noError(t, errors.Join(err, b.Ping(t.Context())))
}

// A proxy cuts the connection after the server has executed a hit, in place of its response.
func TestHitIsNotRepeated(t *testing.T) {
	s := testkit.StartRedis(t)
	var next atomic.Bool
	addr := testkit.CutResponses(t, s, &next)
	b := goredis.New(connect(t, &redis.Options{Addr: addr, MaxRetries: 5}))
	_, err := hit(t, b)
	noError(t, err)
	for i := range uint64(5) {
		w, err := b.Peek(t.Context(), "k", perHour, 0) // connects
		expect(t, err == nil && w.Count == 1+i, "the count is %d after %d hits: %v", w.Count, 1+i, err)
		next.Store(true)
		_, err = hit(t, b)
		expect(t, errors.Is(err, throttr.ErrUnavailable), "hit %d got a response: %v", i, err)
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	s := testkit.StartRedis(t)
	for _, ends := range []bool{false, true} {
		b := goredis.New(connect(t, &redis.Options{Addr: s.Addr, ContextTimeoutEnabled: ends}))
		_, err := hit(t, b)
		noError(t, err)
		s.Must(t, "CLIENT", "PAUSE", "1500", "ALL")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		start := time.Now()
		_, err = b.Hit(ctx, "k", perHour, 1)
		cancel()
		ended := errors.Is(err, context.DeadlineExceeded) || ends && errors.Is(err, throttr.ErrUnavailable) // of the connection, too
		expect(t, ended && time.Since(start) < time.Second, "%v after %v", err, time.Since(start))
		time.Sleep(1500 * time.Millisecond)
	}
}

// A Ring knows no slots, so it may send a key to another server if it shares a script.
func TestNewPanicsForInvalidArguments(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for want, client := range map[string]redis.UniversalClient{
		"goredis: New: client is nil": nil,
		"goredis: New: client is a Ring, which has no slots: takes of several keys would count on wrong servers": ring,
	} {
		func() {
			defer func() {
				got := recover()
				expect(t, got == want, "panics with %q, want %q", got, want)
			}()
			goredis.New(client)
		}()
	}
}

func TestErrorsOfAServerAndItsClient(t *testing.T) {
	s := testkit.StartRedis(t)
	s.Must(t, "ACL", "SETUSER", "limits", "on", "nopass", "allkeys", "+@all", "-evalsha")
	_, err := hit(t, goredis.New(connect(t, &redis.Options{Addr: s.Addr, Username: "limits", Password: "any"})))
	expect(t, errors.Is(err, throttr.ErrUnavailable), "without a permission: %v", err)
	s.Must(t, "CONFIG", "SET", "maxmemory", "1")
	client := connect(t, &redis.Options{Addr: s.Addr})
	b := goredis.New(client)
	_, err = hit(t, b)
	expect(t, errors.Is(err, throttr.ErrFull), "without memory: %v", err)
	_, err = b.Take(t.Context(), "k", perHour, 1)
	expect(t, errors.Is(err, throttr.ErrFull), "without memory: %v", err)
	client.Close()
	_, err = hit(t, b)
	expect(t, errors.Is(err, throttr.ErrClosed), "of a client that was closed: %v", err)
}
