package throttr_test

import (
	"context"
	"errors"
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

func TestParseURLReturnsTheConfig(t *testing.T) {
	for url, want := range map[string]throttr.Config{
		"throttr://h1:9001":                    {Servers: []string{"h1:9001"}},
		"throttr://h1/":                        {Servers: []string{"h1:9000"}},
		"throttr://h1:1?":                      {Servers: []string{"h1:1"}},
		"throttr://h1,h2:7,h3":                 {Servers: []string{"h1:9000", "h2:7", "h3:9000"}},
		"throttr://[::1]:7":                    {Servers: []string{"[::1]:7"}},
		"throttr://[fe80::1%eth0]:7,127.0.0.1": {Servers: []string{"[fe80::1%eth0]:7", "127.0.0.1:9000"}},
		"throttr://[fe80::1%25eth0]":           {Servers: []string{"[fe80::1%eth0]:9000"}},
		"throttr://:9000":                      {Servers: []string{":9000"}},
		"unix:///run/throttr.sock":             {Servers: []string{"unix:///run/throttr.sock"}},
		"unix:///run/throttr.sock?max_conns=1": {Servers: []string{"unix:///run/throttr.sock"}, MaxConns: 1},
		"throttr://h:1?parking=automatic":      {Servers: []string{"h:1"}},
		"throttr://h:1/?max_conns=4&max_in_flight=1023&max_queued=9&max_response=65536&max_retries=-1&lazy=true&parking=never" +
			"&connect_timeout=1%2E5s&stall_timeout=2s&max_conn_age=-1s&max_conn_idle=3m&health_interval=1m30s&min_backoff=4ms&max_backoff=5ms": {
			Servers: []string{"h:1"}, MaxConns: 4, MaxInFlight: 1023, MaxQueued: 9, MaxResponse: 65536, MaxRetries: -1, Lazy: true,
			Parking: throttr.ParkingNever, ConnectTimeout: 1500 * time.Millisecond, StallTimeout: 2 * time.Second, MaxConnAge: -time.Second,
			MaxConnIdle: 3 * time.Minute, HealthInterval: 90 * time.Second, MinBackoff: 4 * time.Millisecond, MaxBackoff: 5 * time.Millisecond,
		},
	} {
		got, err := throttr.ParseURL(url)
		require.NoError(t, err, url)
		require.Equal(t, want, got, url)
	}
	tls, err := throttr.ParseURL("throttrs://h1,h2:443")
	require.NoError(t, err)
	require.NotNil(t, tls.TLS)
	require.Equal(t, []string{"h1:9000", "h2:443"}, tls.Servers)
}

func TestParseURLErrors(t *testing.T) {
	for url, text := range map[string]string{
		"":                                        "no scheme",
		"127.0.0.1:9000":                          "no scheme",
		"redis://h:1":                             `scheme is "redis"`,
		"throttr://h1,,h2":                        "Servers",
		"throttr://::1":                           "Servers",
		"throttr://h1:":                           "no port",
		"throttr://h1:1,h1:1":                     "given twice",
		"throttr://h1/db":                         "path",
		"throttr://h1:1#top":                      "fragment",
		"throttr://h:1?parking=Always":            "there are automatic, never, always",
		"throttr://user:secret@h:1":               "credentials",
		"throttr://h1:1,u:secret@h2:1":            "credentials",
		"throttr://h:1?MAX_CONNS=4":               `"MAX_CONNS" is unknown`,
		"throttr://h:1?max_conns=four":            "max_conns",
		"throttr://h:1?lazy=perhaps":              "lazy",
		"throttr://h:1?max_conns=-1":              "MaxConns is -1, must be 1 to 1024",
		"throttr://h:1?max_conns=1&max_conns=1":   "max_conns is given 2 times",
		"throttr://h:1?stall_timeout=5":           "stall_timeout",
		"throttr://h:1?max_conns=4;max_retries=1": "query",
		"throttr://h:1?max_conns=%zz":             "query",
	} {
		cfg, err := throttr.ParseURL(url)
		require.ErrorIs(t, err, throttr.ErrConfig, url)
		require.ErrorContains(t, err, text, url)
		require.Zero(t, cfg, url)
	}
}

// What is before the host of a URL may be a password, whatever is wrong with the URL.
func TestErrorsOfURLsHaveNoPartOfUserAndPassword(t *testing.T) {
	for _, userinfo := range []string{
		"zoe:s3cr%tpw", "zoe:s3cr/tpw", "zoe:s3cr#tpw", "zoe:s3cr?tpw", "zoe:s3cr?%tpw", "zoe:s3cr?tpw=1", "zoe:s3cr?lazy=tpw", "zoe:s3cr?lazy=1&lazy=tpw",
		"zoe:s3cr tpw", "zoe:s3cr,tpw", "zoe:s3cr\ntpw", "zoe:12?max_conns=tpw", "zoe:s3cr@tpw", "zoe:s3cr@tpw?s3cr", "zoe:s3cr://tpw", "zoe", "zoe:s3crtpw",
	} {
		for _, format := range []string{
			"throttr://%s@127.0.0.1:1", "throttr://%s@127.0.0.1:port", "throttr://%s@127.0.0.1?lazy=x", "throttrs://%s@[::1", "unix://%s@/nowhere",
			"unix://%s@/nowhere?lazy=x", "http://%s@127.0.0.1", "memory://%s@127.0.0.1", "throttr:%s@127.0.0.1", "%s@127.0.0.1", "throttr://%s@", "throttr://127.0.0.1:1,%s@127.0.0.1:2",
		} {
			url := fmt.Sprintf(format, userinfo)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			b, err := throttr.Open(ctx, url)
			cancel()
			if err == nil {
				b.Close()
			}
			require.Error(t, err, url)
			for _, part := range []string{"zoe", "s3cr", "tpw"} {
				require.NotContains(t, err.Error(), part, url)
			}
		}
	}
}

// errDialed is the error of Connect if the Config is valid.
var errDialed = errors.New("dialed")

// dialed returns the network and address that Connect dials first, and its error.
func dialed(t *testing.T, cfg throttr.Config) (where string, err error) {
	t.Helper()
	cfg.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
		where = network + " " + address
		return nil, errDialed
	}
	_, err = throttr.Connect[uint16](t.Context(), cfg)
	require.Error(t, err)
	return where, err
}

// The bounds are inclusive, and without Servers the default one is dialed.
func TestValidConfigsDialTheDefaultServer(t *testing.T) {
	for _, cfg := range []throttr.Config{
		{}, {MaxConns: 1}, {MaxConns: 1024}, {MaxInFlight: 1}, {MaxInFlight: 1023}, {MaxQueued: 1}, {MaxQueued: 1 << 24}, {MaxResponse: 24 << 10}, {MaxResponse: 1 << 30},
		{MaxRetries: -5}, {MaxRetries: 100}, {ConnectTimeout: time.Millisecond}, {MaxConnAge: -1}, {MaxConnIdle: -1},
		{HealthInterval: 1}, {StallTimeout: time.Hour},
	} {
		where, err := dialed(t, cfg)
		require.ErrorIs(t, err, errDialed, "%+v", cfg)
		require.ErrorIs(t, err, throttr.ErrConnect)
		require.Equal(t, "tcp "+throttr.DefaultServer, where)
	}
}

func TestConfigErrorsNameTheFieldAndItsBound(t *testing.T) {
	for text, cfg := range map[string]throttr.Config{
		"MaxConns is -1, must be 1 to 1024":                              {MaxConns: -1},
		"MaxConns is 1025, must be 1 to 1024":                            {MaxConns: 1025},
		"MaxInFlight is 1024, must be 1 to 1023":                         {MaxInFlight: 1024},
		"MaxInFlight is -3, must be 1 to 1023":                           {MaxInFlight: -3},
		"MaxResponse is 24575, must be 24576 to 1073741824":              {MaxResponse: 24575},
		"MaxResponse is 1073741825, must be 24576 to 1073741824":         {MaxResponse: 1<<30 + 1},
		"MaxQueued is 16777217, must be 1 to 16777216":                   {MaxQueued: 1<<24 + 1},
		"MaxRetries is 101, must be at most 100":                         {MaxRetries: 101},
		"ConnectTimeout is -1ns, must be positive":                       {ConnectTimeout: -1},
		"StallTimeout is -1s, must be positive":                          {StallTimeout: -time.Second},
		"HealthInterval is -1ns, must be positive":                       {HealthInterval: -1},
		`Servers: "h" is neither host:port nor unix`:                     {Servers: []string{"h"}},
		"Servers: a URL is not an address: use the Config that ParseURL": {Servers: []string{"throttr://me:secret@h:1"}},
		`Servers: "a:1" is given twice`:                                  {Servers: []string{"a:1", "b:1", "a:1"}},
	} {
		_, err := dialed(t, cfg)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "secret")
	}
}
