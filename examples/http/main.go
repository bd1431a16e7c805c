// Http is a server that allows each client 5 requests in 10 s and 100 an hour. Without arguments
// it sends itself some requests, prints the responses, and exits.
//
//	go run ./examples/http                                        (sends itself some requests)
//	go run ./examples/http -addr 127.0.0.1:8080                   (serves until it is interrupted)
//	go run ./examples/http -addr :8080 -servers 127.0.0.1:9000    (counts on Throttr servers)
//	go run ./examples/http -addr :8080 -proxies 10.0.0.0/8        (trusts X-Forwarded-For of these proxies)
//
// Without -servers, it counts in memory. The servers must have values of 2 bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run runs the program and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("http", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "", "address to serve at (default: send itself some requests)")
	servers := flags.String("servers", "",
		"addresses of Throttr servers, separated by commas (default: count in memory)")
	proxies := flags.String("proxies", "", "prefixes of trusted proxies that set X-Forwarded-For, separated by commas")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if err := start(ctx, *addr, *servers, *proxies, stdout); err != nil {
		fmt.Fprintln(stderr, "http:", err)
		return 1
	}
	return 0
}

// start makes the handler and serves it.
func start(ctx context.Context, addr, servers, proxies string, out io.Writer) error {
	backend, closeBackend, err := connect(ctx, servers)
	if err != nil {
		return err
	}
	defer closeBackend()
	// While the servers are unavailable, each process counts in its own memory.
	local := memory.New()
	defer local.Close()
	handler, err := site(throttr.NewRateLimit(backend, throttr.WithFallback(local)), proxies)
	if err != nil {
		return err
	}
	if addr == "" {
		return serve(ctx, "127.0.0.1:0", handler, out, func(ctx context.Context, url string) error {
			return demonstrate(ctx, url, out)
		})
	}
	return serve(ctx, addr, handler, out, interrupted)
}

// connect returns a backend on Throttr servers, or in memory if servers is empty.
func connect(ctx context.Context, servers string) (backend throttr.Backend, closeBackend func() error, err error) {
	if servers == "" {
		b := memory.New()
		return b, b.Close, nil
	}
	client, err := throttr.Connect[uint16.Value](ctx, throttr.Config{Servers: strings.Split(servers, ",")})
	if err != nil {
		return nil, nil, err
	}
	return client.Backend(), client.Close, nil
}

// site returns the handler. Its requests are limited, except for health checks.
func site(limiter *throttr.RateLimit, proxies string) (http.Handler, error) {
	var from httplimit.AddrConfig
	if proxies != "" {
		from.Header = "X-Forwarded-For"
		for p := range strings.SplitSeq(proxies, ",") {
			prefix, err := netip.ParsePrefix(strings.TrimSpace(p))
			if err != nil {
				return nil, err
			}
			from.Proxies = append(from.Proxies, prefix)
		}
	}
	limit, err := httplimit.New(limiter, httplimit.Config{
		Limits: []throttr.Limit{
			{Name: "burst", Max: 5, Scale: 10 * time.Second},
			httplimit.PerHour(100),
		},
		Addr: from,
		Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" },
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", hello)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return limit(mux), nil
}

// hello responds with the number of requests that the client has left.
func hello(w http.ResponseWriter, r *http.Request) {
	d, _ := httplimit.FromContext(r.Context())
	fmt.Fprintf(w, "Hello, %s! Requests left: %d.\n", d.Strictest.Key, d.Strictest.Remaining)
}

// serve serves handler while f runs. The context of f ends if serving fails.
func serve(ctx context.Context, addr string, handler http.Handler, out io.Writer,
	f func(ctx context.Context, url string) error) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	fmt.Fprintf(out, "serving at %s\n", url)
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	serving, stopped := context.WithCancelCause(ctx)
	go func() { stopped(srv.Serve(listener)) }()
	err = f(serving, url)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, srv.Shutdown(grace))
}

// interrupted waits until ctx ends. It returns nil after an interrupt, and otherwise the cause.
func interrupted(ctx context.Context, _ string) error {
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
