package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/grpclimit"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/otelthrottr"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/redisbackend/goredis"
	"github.com/throttr-go/throttr/rediswindow"
)

// requireLimit hits a key three times and fails the test unless two hits are allowed.
func requireLimit(t *testing.T, limiter *throttr.RateLimit) {
	t.Helper()
	for i := range 3 {
		res, err := limiter.Hit(t.Context(), "user:42", time.Minute, 2)
		if err != nil || res.Allowed != (i < 2) {
			t.Fatalf("hit %d: %v, %v", i+1, res, err)
		}
	}
}

func TestMemoryLimits(t *testing.T) {
	requireLimit(t, throttr.NewRateLimit(memory.New()))
}

func TestServersLimit(t *testing.T) {
	srv := mockserver.RunT(t)
	client, err := throttr.Connect[uint16](t.Context(), throttr.Config{Servers: []string{srv.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	requireLimit(t, throttr.NewRateLimit(client.Backend()))
}

func TestMiddlewareLimits(t *testing.T) {
	limit, err := httplimit.New(throttr.NewRateLimit(memory.New()), httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{http.StatusNotFound, http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		limit(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != want {
			t.Fatalf("request %d: status %d", i+1, w.Code)
		}
	}
}

func TestInterceptorsLimit(t *testing.T) {
	limit, err := grpclimit.NewServer(throttr.NewRateLimit(memory.New()), grpclimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		_, err := limit.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) != want {
			t.Fatalf("call %d: %v", i+1, err)
		}
	}
}

func TestTelemetryObserves(t *testing.T) {
	observer, err := otelthrottr.New()
	if err != nil {
		t.Fatal(err)
	}
	requireLimit(t, throttr.NewRateLimit(memory.New(), throttr.WithObserver(observer)))
}

func TestRedisLimits(t *testing.T) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed")
	}
	dir, err := os.MkdirTemp("", "redis") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "socket")
	cmd := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	client := connect(t, socket)
	defer client.Close()
	requireLimit(t, throttr.NewRateLimit(redisbackend.New(client)))
	other := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	defer other.Close()
	requireLimit(t, throttr.NewRateLimit(goredis.New(other, rediswindow.WithPrefix("goredis:"))))
}

// connect returns a client of the Redis server that listens on a socket, or is about to.
func connect(t *testing.T, socket string) rueidis.Client {
	t.Helper()
	option := rueidis.ClientOption{InitAddress: []string{socket}, DisableCache: true}
	option.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return d.DialContext(ctx, "unix", socket)
	}
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		client, err := rueidis.NewClient(option)
		if err == nil {
			return client
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal(err)
		}
	}
}
