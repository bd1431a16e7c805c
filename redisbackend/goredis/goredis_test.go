package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend/goredis"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// The client logs every attempt to connect that fails.
func init() { redis.SetLogger(silent{}) }

type silent struct{}

// Printf implements the interface of redis.SetLogger.
func (silent) Printf(context.Context, string, ...any) {}

// patience is how long clients wait for a response: a busy machine may stop a server for seconds.
const patience = time.Minute

// conformance runs the suite with two clients of one store.
func conformance(t *testing.T, connect func() redis.UniversalClient) {
	client, second := connect(), connect()
	t.Cleanup(func() {
		client.Close()
		second.Close()
	})
	testkit.Conform(t, func(opts ...rediswindow.Option) (one, other *rediswindow.Backend) {
		return goredis.New(client, opts...), goredis.New(second, opts...)
	})
}

var perHour = window.Limit{Max: 10, Scale: time.Hour, Algorithm: window.FixedWindow}

func TestBackendOnAServerConforms(t *testing.T) {
	s := testkit.StartRedis(t)
	conformance(t, func() redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: patience})
	})
}

func TestBackendOnAClusterConforms(t *testing.T) {
	c := testkit.StartCluster(t, 3)
	conformance(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadTimeout: patience})
	})
}

// A proxy cuts each connection after the server has executed a hit.
//
//evidence:redis A hit that go-redis may have sent is never sent again
func TestHitIsNotRepeated(t *testing.T) {
	s := testkit.StartRedis(t)
	cut := cutResponses(t, s)
	client := redis.NewClient(&redis.Options{Addr: cut.addr, MaxRetries: 5})
	defer client.Close()
	b := goredis.New(client)
	cut.pass.Store(true)
	if _, err := b.Hit(t.Context(), "k", perHour, 1); err != nil {
		t.Fatal(err)
	}
	cut.pass.Store(false)
	for i := range 5 {
		if _, err := b.Hit(t.Context(), "k", perHour, 1); err == nil {
			t.Fatalf("hit %d got a response", i)
		}
	}
	cut.pass.Store(true)
	w, err := b.Peek(t.Context(), "k", perHour, 0)
	if err != nil || w.Count != 6 {
		t.Fatalf("the count is %d, want 6: %v", w.Count, err)
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	s := testkit.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	b := goredis.New(client)
	if _, err := s.Do("CLIENT", "PAUSE", "2000", "ALL"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := b.Hit(ctx, "k", perHour, 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second {
		t.Fatalf("%v after %v", err, time.Since(start))
	}
}

// A Ring knows no slots, so it may send a key to another server if it shares a script.
func TestNewPanicsIfTheClientIsARing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "client is a Ring") {
			t.Errorf("panics with %q", got)
		}
	}()
	goredis.New(ring)
}

func TestNewPanicsIfTheClientIsNil(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); got != "goredis: New: client is nil" {
			t.Errorf("panics with %q", got)
		}
	}()
	goredis.New(nil)
}

func TestOpen(t *testing.T) {
	s := testkit.StartRedis(t)
	b, err := throttr.Open(t.Context(), "goredis://"+s.Addr+"?prefix=a:&timeout=10s")
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.Hit(t.Context(), "k", perHour, 1)
	if err := errors.Join(err, b.Ping(t.Context())); err != nil || w.Count != 1 {
		t.Errorf("%+v, %v", w, err)
	}
	if n, err := s.Do("HLEN", "a:{k:k}:v2"); err != nil || n != "1" {
		t.Errorf("%s, %v", n, err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if _, err := b.Hit(t.Context(), "k", perHour, 1); !errors.Is(err, throttr.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestServerThatIsAwayIsUnavailable(t *testing.T) {
	const url = "goredis://127.0.0.1:1"
	if _, err := throttr.Open(t.Context(), url); !errors.Is(err, throttr.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	b, err := throttr.Open(t.Context(), url+"?lazy=true")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, ok := b.BackendCloser.(outage.Parts); !ok {
		t.Error("a node of a cluster that is away opens the circuit of all")
	}
	if _, err := b.Hit(t.Context(), "k", perHour, 1); !errors.Is(err, throttr.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if stats := b.Stats().Stores[0]; stats.Name != "127.0.0.1:1" || stats.Errors != 1 || !errors.Is(stats.Err, throttr.ErrUnavailable) {
		t.Errorf("%+v", stats)
	}
}

// While a server hangs, Close does not wait for the timeouts of the client.
func TestCloseOfAServerThatHangsEndsSoon(t *testing.T) {
	s := testkit.StartRedis(t)
	b, err := throttr.Open(t.Context(), "goredis://"+s.Addr+"?timeout=30s")
	if err != nil {
		t.Fatal(err)
	}
	limiter := throttr.NewRateLimit(b, throttr.WithLogger(nil))
	if _, err := limiter.Hit(t.Context(), "k", time.Minute, 100); err != nil {
		t.Fatal(err)
	}
	s.Freeze(t)
	defer s.Thaw(t)
	limiter.Hit(t.Context(), "k", time.Minute, 100) // fails, and its request stays in flight
	begun, closed := time.Now(), make(chan struct{})
	go func() {
		defer close(closed)
		b.Close()
	}()
	select {
	case <-closed:
		t.Logf("closed after %v", time.Since(begun))
	case <-time.After(10 * time.Second):
		t.Error("not closed after 10 s")
	}
}

func TestErrorsOfOpenHaveNoPassword(t *testing.T) {
	for _, url := range []string{
		"goredis://zoe:12/tpw", "goredis://:12/tpw", "goredis+tls://zoe:12/tpw/s3cr", "goredis://zoe:12?db=tpw", "goredis://zoe:12?tpw=1",
		"goredis://zoe:tpw@127.0.0.1:port", "goredis://zoe:tpw@127.0.0.1:1?db=x", "goredis://zoe:tpw@127.0.0.1:1?prefx=a", "goredis://zoe:t/tpw@127.0.0.1",
	} {
		if _, err := throttr.Open(t.Context(), url); !errors.Is(err, throttr.ErrConfig) || strings.Contains(err.Error(), "tpw") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestServerWithoutMemoryIsFull(t *testing.T) {
	s := testkit.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	if _, err := s.Do("CONFIG", "SET", "maxmemory", "1"); err != nil {
		t.Fatal(err)
	}
	b := goredis.New(client)
	_, hit := b.Hit(t.Context(), "k", perHour, 1)
	_, take := b.Take(t.Context(), "k", perHour, 1)
	for _, err := range []error{hit, take} {
		if !errors.Is(err, window.ErrFull) {
			t.Errorf("%v", err)
		}
	}
}

func TestUserOfTheDocumentMayDoAllThatIsNeeded(t *testing.T) {
	testkit.AsUserOfTheDocument(t, func(url string) {
		b, err := throttr.Open(t.Context(), "goredis://"+url)
		if err != nil {
			t.Fatal(url, err)
		}
		defer b.Close()
		for a := window.FixedWindow; a <= limits.LastAlgorithm; a++ {
			if w, err := b.Take(t.Context(), "k", window.Limit{Max: 10, Scale: time.Hour, Algorithm: a}, 1); err != nil || w.Refused {
				t.Error(url, a, w, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		places := inflight.New(b)
		defer places.Close()
		one := inflight.Limit{Name: "one", Max: 1, Lease: time.Second}
		hold, err := places.Acquire(ctx, "k", one, 1)
		if err != nil {
			t.Fatal(url, err)
		}
		hold.Release()
	})
}

func TestUserWithoutPermissionIsUnavailable(t *testing.T) {
	s := testkit.StartRedis(t)
	s.Must(t, "ACL", "SETUSER", "limits", "on", "nopass", "allkeys", "+@all", "-evalsha")
	client := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "limits", Password: "any"})
	defer client.Close()
	if _, err := goredis.New(client).Hit(t.Context(), "k", perHour, 1); !errors.Is(err, throttr.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
