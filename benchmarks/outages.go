package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/tools/load"
	"github.com/throttr-go/throttr/memory"
	_ "github.com/throttr-go/throttr/redisbackend"
	_ "github.com/throttr-go/throttr/redisbackend/goredis"
)

// The load of a service while its store is away.
const (
	outageRate   = 2000             // requests a second, whether those before have been served or not
	outagePeriod = 10 * time.Second // the store is away
	opening      = 500 * time.Millisecond
)

// outageService is a service whose requests are limited.
type outageService struct {
	name   string
	server string // "redis" or "throttr": what it needs
	// start returns the handler, and how to end it. Requests that the limiter has decided without the store
	// have a header field Degraded.
	start func(addr string, log *slog.Logger) (http.Handler, func(), error)
}

var outageServices = []outageService{
	{"throttr on Redis, rueidis", "redis", startOutageService("redis://")},
	{"throttr on Redis, go-redis", "redis", startOutageService("goredis://")},
	{"throttr on Throttr", "throttr", startOutageService("throttr://")},
	{"redis_rate", "redis", func(addr string, _ *slog.Logger) (http.Handler, func(), error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		l := redis_rate.NewLimiter(client)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := l.Allow(r.Context(), "user", redis_rate.PerMinute(1<<20)); err != nil {
				w.Header().Set("Degraded", "1")
			}
		}), func() { client.Close() }, nil
	}},
	{"ulule/limiter", "redis", func(addr string, _ *slog.Logger) (http.Handler, func(), error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		store, err := ululeredis.NewStore(client)
		if err != nil {
			return nil, nil, err
		}
		l := limiter.New(store, limiter.Rate{Period: time.Minute, Limit: 1 << 20})
		m := ululehttp.NewMiddleware(l, ululehttp.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.Header().Set("Degraded", "1")
		}))
		return m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), func() { client.Close() }, nil
	}},
}

// startOutageService starts a service as the documents show it: with a fallback, and defaults otherwise.
func startOutageService(scheme string) func(addr string, log *slog.Logger) (http.Handler, func(), error) {
	return func(addr string, log *slog.Logger) (http.Handler, func(), error) {
		backend, err := throttr.Open(context.Background(), scheme+addr+"?lazy=true")
		if err != nil {
			return nil, nil, err
		}
		type degraded struct{}
		limiter := throttr.NewRateLimit(backend, throttr.WithFallback(memory.New()), throttr.WithLogger(log),
			throttr.WithObserver(func(ctx context.Context, e throttr.Event) {
				if h, ok := ctx.Value(degraded{}).(http.Header); ok && e.Result.Degraded {
					h.Set("Degraded", "1")
				}
			}))
		limit, err := httplimit.New(limiter, httplimit.Config{
			Limits: []throttr.Limit{{Name: "api", Max: 1 << 20, Scale: time.Minute}},
			Key:    func(*http.Request) string { return "user" },
		})
		if err != nil {
			return nil, nil, err
		}
		served := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), degraded{}, w.Header())))
		}), func() { backend.Close() }, nil
	}
}

// outageKind is a way in which a store is away.
type outageKind struct {
	name string
	only string // the server that has it; empty: all
	// begin makes the store be away. Away returns it.
	begin func(ctx context.Context, s *outageStore) error
	end   func(ctx context.Context, s *outageStore) error
}

var outageKinds = []outageKind{
	{"hangs (SIGSTOP)", "", signalStore(syscall.SIGSTOP), signalStore(syscall.SIGCONT)},
	{"down (killed, started again)", "",
		func(_ context.Context, s *outageStore) error {
			s.process.cmd.Process.Kill()
			s.process.cmd.Wait()
			return nil
		},
		func(ctx context.Context, s *outageStore) error { return s.start(ctx) }},
	{"400 ms late", "",
		func(_ context.Context, s *outageStore) error {
			s.proxy.delay.Store(int64(400 * time.Millisecond))
			return nil
		},
		func(_ context.Context, s *outageStore) error { s.proxy.delay.Store(0); return nil }},
	{"read-only (demoted)", "redis", redisCommand("replicaof", "127.0.0.1", "1"), redisCommand("replicaof", "no", "one")},
	{"full (OOM)", "redis", redisCommand("config", "set", "maxmemory", "1"), redisCommand("config", "set", "maxmemory", "0")},
}

func signalStore(sig syscall.Signal) func(context.Context, *outageStore) error {
	return func(_ context.Context, s *outageStore) error { return s.process.cmd.Process.Signal(sig) }
}

func redisCommand(args ...any) func(context.Context, *outageStore) error {
	return func(ctx context.Context, s *outageStore) error {
		client := redis.NewClient(&redis.Options{Addr: s.addr})
		defer client.Close()
		return client.Do(ctx, args...).Err()
	}
}

// outageStore is a server behind a proxy.
type outageStore struct {
	*servers
	kind    string
	addr    string
	process *process
	proxy   *proxy
}

func (s *outageStore) start(ctx context.Context) (err error) {
	if s.kind == "redis" {
		s.process, err = s.startRedisAt(ctx, s.addr)
	} else {
		s.process, err = s.startMock(ctx, s.addr)
	}
	return err
}

// proxy forwards connections, and delays what the store sends.
type proxy struct {
	net.Listener
	delay atomic.Int64
}

func startProxy(to string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{Listener: l}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.forward(client, to)
		}
	}()
	return p, nil
}

func (p *proxy) forward(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		client.(*net.TCPConn).SetLinger(0)
		return
	}
	defer server.Close()
	go func() {
		io.Copy(server, client)
		server.Close()
	}()
	type chunk struct {
		at    time.Time
		bytes []byte
	}
	chunks := make(chan chunk, 10_000)
	go func() {
		defer close(chunks)
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			chunks <- chunk{time.Now().Add(time.Duration(p.delay.Load())), slices.Clone(buffer[:n])}
		}
	}()
	for c := range chunks {
		time.Sleep(time.Until(c.at))
		if _, err := client.Write(c.bytes); err != nil {
			return
		}
	}
}

// request is what one request took.
type request struct {
	at, took time.Duration // since the begin of the outage
	degraded bool
}

// runOutages measures each service in each kind of outage, and prints a table.
func runOutages(ctx context.Context) error {
	all, err := newServers(ctx)
	if err != nil {
		return err
	}
	defer all.stop()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.Debug)
	fmt.Fprintf(table, "| the store | service | slowest | p99 in the first %v | p50 then | p99 then | goroutines | counts again after | log lines |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n", opening)
	for _, kind := range outageKinds {
		for _, service := range outageServices {
			if kind.only != "" && kind.only != service.server {
				continue
			}
			addr, err := freeAddress()
			if err != nil {
				return err
			}
			s := &outageStore{servers: all, kind: service.server, addr: addr}
			row, err := s.measure(ctx, kind, service)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", kind.name, service.name, err)
			}
			fmt.Fprintln(os.Stderr, kind.name, service.name, row)
			fmt.Fprintf(table, "| %s | %s | %s |\n", kind.name, service.name, row)
		}
	}
	return table.Flush()
}

// measure returns the cells of a row.
func (s *outageStore) measure(ctx context.Context, kind outageKind, service outageService) (row string, err error) {
	if err := s.start(ctx); err != nil {
		return "", err
	}
	defer func() { s.process.cmd.Process.Kill(); s.process.cmd.Wait() }()
	if s.proxy, err = startProxy(s.addr); err != nil {
		return "", err
	}
	defer s.proxy.Close()
	var lines lineCounter
	handler, end, err := service.start(s.proxy.Addr().String(), slog.New(slog.NewTextHandler(&lines, nil)))
	if err != nil {
		return "", err
	}
	defer end()

	const before, after = time.Second, 3 * time.Second
	var mu sync.Mutex
	var all []request
	var calls sync.WaitGroup
	goroutines, begun := 0, time.Now().Add(before)
	next := begun.Add(-before)
	send := func(until time.Time) {
		for ; next.Before(until); next = next.Add(time.Second / outageRate) {
			time.Sleep(time.Until(next))
			calls.Go(func() {
				w := httptest.NewRecorder()
				at := time.Now()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
				r := request{at.Sub(begun), time.Since(at), w.Header().Get("Degraded") != ""}
				mu.Lock()
				all = append(all, r)
				mu.Unlock()
			})
			goroutines = max(goroutines, runtime.NumGoroutine())
		}
	}
	send(begun)
	goroutines = 0
	if err := kind.begin(ctx, s); err != nil {
		return "", err
	}
	send(begun.Add(outagePeriod))
	if err := kind.end(ctx, s); err != nil {
		return "", err
	}
	back := time.Since(begun)
	send(begun.Add(outagePeriod + after))
	calls.Wait()

	var first, then load.Histogram
	slowest, counted := time.Duration(0), back
	for _, r := range all {
		switch {
		case r.at < 0:
		case r.at < opening:
			first.Add(r.took, 1)
		case r.at < outagePeriod:
			then.Add(r.took, 1)
		case r.degraded:
			counted = max(counted, r.at)
		}
		if r.at >= 0 {
			slowest = max(slowest, r.took)
		}
	}
	again := (counted - back).Round(time.Millisecond).String()
	if counted > outagePeriod+after-100*time.Millisecond {
		again = "not within " + after.String()
	}
	return fmt.Sprintf("%s | %s | %s | %s | %d | %s | %d", load.FormatDuration(slowest), load.FormatDuration(first.Quantile(0.99)),
		load.FormatDuration(then.Quantile(0.5)), load.FormatDuration(then.Quantile(0.99)), goroutines, again, lines.Load()), nil
}

// lineCounter counts lines.
type lineCounter struct{ atomic.Int64 }

// Write implements [io.Writer].
func (c *lineCounter) Write(p []byte) (int, error) {
	c.Add(int64(strings.Count(string(p), "\n")))
	return len(p), nil
}
