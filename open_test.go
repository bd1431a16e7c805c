package throttr_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// openURL opens a backend that is closed at the end of the test.
func openURL(t *testing.T, url string) *throttr.OpenBackend {
	t.Helper()
	b, err := throttr.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// openOver opens a backend over a network of the test. It must be closed in the bubble.
func openOver(t *testing.T, cfg throttr.Config, opts ...throttr.BackendOption) *throttr.OpenBackend {
	t.Helper()
	b, err := throttr.OpenServers(t.Context(), cfg, opts...)
	require.NoError(t, err)
	return b
}

func TestServersHaveValuesOfOneSize(t *testing.T) {
	var servers []string
	for _, size := range []int{4, 8} {
		servers = append(servers, mockserver.RunT(t, mockserver.WithValueSize(size)).Addr())
	}
	_, err := throttr.OpenServers(t.Context(), throttr.Config{Servers: servers})
	require.ErrorIs(t, err, throttr.ErrConnect)
	require.ErrorIs(t, err, throttr.ErrValueSizeMismatch)
	require.Regexp(t, "has [48]-byte values, and .* had [84]-byte values", err)
}

// lazyStarts are the ways to start while servers are away. Each returns a backend and closes it.
var lazyStarts = map[string]func(*testing.T, throttr.Config) (throttr.Backend, func() error){
	"Connect": func(t *testing.T, cfg throttr.Config) (throttr.Backend, func() error) {
		client, err := throttr.Connect[uint16](t.Context(), cfg)
		require.NoError(t, err)
		return client.Backend(), client.Close
	},
	"Open": func(t *testing.T, cfg throttr.Config) (throttr.Backend, func() error) {
		b := openOver(t, cfg)
		return b, b.Close
	},
}

// A program that starts while its servers are away serves by its policy, however long that takes,
// and counts on the servers within a second of their return.
func TestAPodThatStartsBeforeItsServersServesByItsPolicyAndCountsWithinASecondOfTheirReturn(t *testing.T) {
	for _, c := range []struct {
		how   string
		sizes []int
	}{{"Connect", []int{2}}, {"Open", []int{1, 2, 4, 8}}} {
		for _, size := range c.sizes {
			for _, outage := range []time.Duration{0, 10 * time.Millisecond, 3 * time.Second, time.Hour} {
				testkit.Bubble(t, fmt.Sprint(c.how, size, outage), func(t *testing.T) { startDuringAnOutage(t, c.how, size, outage) })
			}
		}
	}
}

func startDuringAnOutage(t *testing.T, how string, size int, outage time.Duration) {
	srv := testkit.InMemory(t, mockserver.WithValueSize(size))
	srv.Refuse(outage > 0)
	begun := time.Now()
	backend, end := lazyStarts[how](t, testkit.Over(srv, throttr.Config{Servers: []string{"a:1"}, Lazy: true}))
	defer end()
	require.Zero(t, time.Since(begun), "the first attempt has failed at once")
	limiter := throttr.NewRateLimit(backend, throttr.WithPolicy(throttr.AllowHits))
	strict := throttr.NewRateLimit(backend)
	for time.Since(begun) < outage {
		at := time.Now()
		res := decided(t)(limiter.Hit(t.Context(), "k", time.Minute, 1))
		require.True(t, res.Allowed && res.Degraded)
		_, err := strict.Hit(t.Context(), "k", time.Minute, 1)
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.True(t, testkit.SafeToRetry(err))
		require.Zero(t, time.Since(at), "hits do not wait")
		time.Sleep(outage / 10)
	}
	srv.Refuse(false)
	if outage > 0 {
		time.Sleep(time.Second)
	}
	require.Equal(t, 3, testkit.Hits(t, strict, 5, "k", time.Minute, 3))
	res := decided(t)(limiter.Hit(t.Context(), "k", time.Minute, 3))
	require.False(t, res.Allowed || res.Degraded)
}

// hang connects to nothing until its ctx ends.
func hang(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// If the network swallows the attempts to connect, neither the start nor a hit waits for them.
func TestALazyStartWaitsHalfASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, start := range lazyStarts {
			begun := time.Now()
			backend, end := start(t, throttr.Config{Servers: []string{"a:1"}, Lazy: true, Dial: hang})
			defer end()
			_, err := throttr.NewRateLimit(backend).Hit(t.Context(), "k", time.Minute, 1)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
			require.Equal(t, 500*time.Millisecond, time.Since(begun), name)
		}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		b, err := throttr.OpenServers(ctx, throttr.Config{Lazy: true, Dial: hang})
		require.NoError(t, err)
		require.NoError(t, b.Close(), "Close ends the attempts")
		require.Equal(t, 100*time.Millisecond, time.Since(begun), "the end of ctx ends the wait")
		_, err = throttr.NewRateLimit(b, throttr.WithPolicy(throttr.AllowHits)).Hit(t.Context(), "k", time.Minute, 1)
		require.ErrorIs(t, err, throttr.ErrClosed)
	})
}

// A lazy start is not silent if the store is not there, and has one line for each store that is opened. WithLogger and
// calls are not needed.
func TestALazyStartReportsAStoreThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, own := &journal{}, &journal{}
		before := slog.Default()
		slog.SetDefault(log.logger())
		defer slog.SetDefault(before)
		srv := testkit.InMemory(t)
		for _, c := range []struct {
			cfg   throttr.Config
			close bool
		}{
			{testkit.Over(srv, throttr.Config{Lazy: true}), false},
			{throttr.Config{Lazy: true, Dial: hang}, true},
			{throttr.Config{Lazy: true, Servers: []string{"a:1"}, Dial: hang}, false},
			{throttr.Config{Lazy: true, Servers: []string{"a:1"}, Dial: hang, Logger: own.logger()}, false},
		} {
			b := openOver(t, c.cfg)
			if c.close {
				b.Close()
			}
			time.Sleep(time.Minute)
			b.Close()
		}
		window.Register("nowhere", func(context.Context, string) (window.BackendCloser, error) {
			return throttr.OpenServers(t.Context(), throttr.Config{Dial: hang, Lazy: true, Logger: slog.New(slog.DiscardHandler)})
		})
		for _, url := range []string{"nowhere://", "nowhere://?lazy=false", "nowhere://h,i?prefix=x&lazy=true"} {
			b := openURL(t, url)
			time.Sleep(time.Minute)
			b.Close()
		}
		window.Register("broken", func(context.Context, string) (window.BackendCloser, error) { return noConnection{memory.New()}, nil })
		panicked := &journal{}
		slog.SetDefault(panicked.logger())
		b := openURL(t, "broken://?lazy=true")
		time.Sleep(time.Minute)
		b.Close()
		require.Equal(t, "throttr: the backend has panicked", panicked.entries(t)[0]["msg"])
		for _, j := range []*journal{log, own} {
			for _, line := range j.entries(t) {
				require.Equal(t, "WARN", line["level"])
				require.Equal(t, "throttr: the store can't be reached yet", line["msg"])
				require.Contains(t, line["error"], "no response yet")
			}
		}
		require.Len(t, log.entries(t), 2)
		require.Equal(t, "a:1", log.entries(t)[0]["store"])
		require.Equal(t, "127.0.0.1:9000", log.entries(t)[1]["store"])
		require.Len(t, own.entries(t), 1)
	})
}

// noConnection is a backend whose Ping panics.
type noConnection struct{ *memory.Backend }

func (noConnection) Ping(context.Context) error { panic("there is no connection") }

// A server that can't be reached does not keep a lazy start from using the others.
func TestALazyOpenLearnsTheSizeFromAnyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := testkit.Several(t, 2, mockserver.WithValueSize(8))
		servers[0].HoldAccept(true)
		b := openOver(t, servers.Over(throttr.Config{Lazy: true}))
		defer b.Close()
		require.Error(t, b.Stats().Stores[0].Err)
		require.NoError(t, b.Stats().Stores[1].Err)
		byServer := map[bool]int{}
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			_, err := throttr.NewRateLimit(b).Hit(t.Context(), key, time.Minute, 1)
			byServer[err == nil]++
		}
		require.Positive(t, byServer[true])
		require.Positive(t, byServer[false])
	})
}

func TestMistakesAreErrorsWhileTheValueSizeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Refuse(true)
		b := openOver(t, testkit.Over(srv, throttr.Config{Lazy: true}))
		defer b.Close()
		short := throttr.Limit{Max: 1, Scale: 60, Algorithm: throttr.FixedWindow}
		large := throttr.Limit{Max: 1 << 60, Scale: time.Minute, Algorithm: throttr.FixedWindow}
		takes := []throttr.Take{large.For("k", 1), short.For("short", 1)}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.Check(large)
		require.NoError(t, err)
		for _, c := range []struct {
			call func(ctx context.Context) error
			want error
		}{
			{func(context.Context) error { _, err := b.Check(short); return err }, throttr.ErrScale},
			{func(ctx context.Context) error { _, err := b.Hit(ctx, "k", short, 1); return err }, throttr.ErrScale},
			{func(ctx context.Context) error { _, err := b.Delete(ctx, "k", time.Minute, 60); return err }, throttr.ErrScale},
			{func(ctx context.Context) error { _, err := b.TakeAll(ctx, takes, make([]window.Window, 2)); return err }, throttr.ErrScale},
			{func(context.Context) error { _, err := b.Peek(ended, "k", large, 0); return err }, context.Canceled},
			{func(ctx context.Context) error { return b.Reset(ctx, "k", large) }, throttr.ErrUnavailable},
			{func(ctx context.Context) error { _, err := b.Set(ctx, "k", large, 1); return err }, throttr.ErrUnavailable},
			{func(ctx context.Context) error { _, err := b.Charge(ctx, "k", large, 1); return err }, throttr.ErrUnavailable},
			{func(ctx context.Context) error { _, err := b.Delete(ctx, "k"); return err }, throttr.ErrUnavailable},
			{func(ctx context.Context) error { _, err := listed(ctx, b); return err }, throttr.ErrUnavailable},
		} {
			require.ErrorIs(t, c.call(t.Context()), c.want)
		}
		_, err = b.TakeAll(t.Context(), takes, make([]window.Window, 2))
		require.ErrorContains(t, err, `take "short"`)
		srv.Refuse(false)
		time.Sleep(time.Second)
		_, err = b.Check(large)
		require.ErrorIs(t, err, throttr.ErrRange)
		_, err = listed(t.Context(), b)
		require.NoError(t, err)
	})
}
