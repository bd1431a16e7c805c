package redisbackend_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

func TestOpenIsABackendThatCanBeClosed(t *testing.T) {
	b, err := throttr.Open(t.Context(), "redis://"+testkit.StartRedis(t).Addr)
	noError(t, err)
	limiter := throttr.NewRateLimit(b, throttr.WithPolicy(throttr.AllowHits))
	for i := range 3 {
		res, err := limiter.Hit(t.Context(), "k", time.Minute, 2)
		expect(t, err == nil && res.Allowed == (i < 2), "hit %d: %v, %v", i, res, err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if _, err := limiter.Hit(t.Context(), "k", time.Minute, 2); !errors.Is(err, throttr.ErrClosed) {
		t.Errorf("a hit after Close: %v", err)
	}
}

func TestOpenReturnsErrors(t *testing.T) {
	for _, url := range []string{"", "http://127.0.0.1", "redis://127.0.0.1:1"} {
		if b, err := throttr.Open(t.Context(), url); err == nil || b != nil {
			t.Errorf("%q: %v, %v", url, b, err)
		}
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := throttr.Open(ctx, "redis://"+silent.Addr().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("a ctx that has ended: %v", err)
	}
}

// A backend that is opened lazily fails until its server is there.
func TestLazyOpen(t *testing.T) {
	s := testkit.StartRedis(t)
	s.Kill()
	b, err := throttr.Open(t.Context(), "redis://"+s.Addr+"?lazy=true&prefix=a:&max_log=5&max_queued=7&timeout=5s")
	noError(t, err)
	defer b.Close()
	_, parts := b.BackendCloser.(outage.Parts)
	expect(t, parts, "a node of a cluster that is away opens the circuit of all")
	l := limitOf(window.FixedWindow, time.Minute, 10)
	_, hit := b.Hit(t.Context(), "k", l, 1)
	_, all := b.TakeAll(t.Context(), []window.Take{l.For("k", 1)}, make([]window.Window, 1))
	for _, err := range []error{hit, all, b.Ping(t.Context())} {
		expect(t, errors.Is(err, throttr.ErrUnavailable), "without a server: %v", err)
	}
	if _, err := b.Hit(t.Context(), "k", window.Limit{}, 1); errors.Is(err, throttr.ErrUnavailable) || !errors.Is(err, throttr.ErrScale) {
		t.Errorf("a mistake: %v", err)
	}
	if _, err := b.Check(limitOf(window.SlidingLog, time.Minute, 6)); !errors.Is(err, throttr.ErrRange) {
		t.Errorf("max_log: %v", err)
	}
	stats := b.Stats()
	if len(stats.Stores) != 1 || stats.Stores[0].Name != s.Addr || stats.Stores[0].Errors != 3 || !errors.Is(stats.Stores[0].Err, throttr.ErrUnavailable) {
		t.Errorf("%+v", stats)
	}
	time.Sleep(2 * time.Second) // the pauses between attempts are at their longest
	s.Restart(t)
	for deadline := time.Now().Add(time.Second); b.Ping(t.Context()) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the backend does not connect within a second")
		}
	}
	if w, err := b.Hit(t.Context(), "k", l, 1); err != nil || w.Count != 1 {
		t.Errorf("with a server: %+v, %v", w, err)
	}
	if err := b.Stats().Stores[0].Err; err != nil {
		t.Errorf("with a server: %v", err)
	}
	names := s.Must(t, "KEYS", "*")
	expect(t, names == "a:{k:k}:v2", "prefix: %q", names)
}

func TestPing(t *testing.T) {
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	if err := b.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if err := b.Ping(t.Context()); !errors.Is(err, throttr.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestOpenRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, query := range []string{"prefx=a", "max_log=x", "max_log=-1", "max_queued=-1", "lazy=maybe", "timeout=1", "timeout=-1s", "lazy=true&lazy=true", "a=%zz"} {
		for _, scheme := range []string{"redis", "rediss", "redis+unix"} {
			if _, err := throttr.Open(t.Context(), scheme+"://127.0.0.1:1?"+query); !errors.Is(err, throttr.ErrConfig) {
				t.Errorf("%s, %s: %v", scheme, query, err)
			}
		}
	}
}
