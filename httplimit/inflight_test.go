package httplimit_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
)

// stream is one request at a time of a client.
var stream = inflight.Limit{Name: "streams", Max: 1, Lease: time.Second}

// pipes is a network in memory, on which time need not pass.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error { close(p.closed); return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// service is an HTTP server with a limit in flight, in a bubble.
type service struct {
	t      *testing.T
	places *inflight.Limiter
	server *http.Server
	client *http.Client
}

// serve serves requests to a handler, of clients that may have one in flight. The places are those of a store.
func serve(t *testing.T, cfg httplimit.Config, handler http.HandlerFunc) *service {
	s := &service{t: t}
	store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
	s.places = inflight.New(store)
	cfg.InFlight = stream
	cfg.Places = s.places
	cfg.Key = httplimit.Everyone
	limit, err := httplimit.New(throttr.NewRateLimit(store), cfg)
	require.NoError(t, err)
	network := pipes{make(chan net.Conn), make(chan struct{})}
	s.client = &http.Client{Transport: &http.Transport{DialContext: network.dial, DisableKeepAlives: true}}
	s.server = &http.Server{Handler: limit(handler), ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(network) }()
	t.Cleanup(func() {
		s.server.Close()
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		s.places.Close()
	})
	return s
}

// send sends a request.
func (s *service) send(ctx context.Context, change ...func(*http.Request)) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service/", nil)
	require.NoError(s.t, err)
	for _, c := range change {
		c(r)
	}
	res, err := s.client.Do(r)
	if err == nil {
		s.t.Cleanup(func() { res.Body.Close() })
	}
	return res, err
}

// inUse returns how many places are held, after everything has happened that can.
func (s *service) inUse() uint64 {
	synctest.Wait()
	state, err := s.places.Peek(s.t.Context(), "client:keveryone", stream)
	require.NoError(s.t, err)
	return state.InUse
}

// A handler that does not notice that its client has gone still works: it holds its place until it returns, or panics.
func TestAHandlerThatGoesOnHoldsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan bool)
		s := serve(t, httplimit.Config{}, func(http.ResponseWriter, *http.Request) {
			if <-end {
				panic(http.ErrAbortHandler)
			}
		})
		for _, panics := range []bool{false, true} {
			ctx, leave := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, leave)
			_, err := s.send(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.EqualValues(t, 1, s.inUse())
			end <- panics
			require.Zero(t, s.inUse())
		}
	})
}

// upgraded sends what a request to hijack has.
func upgraded(r *http.Request) {
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
}

// unwrapped is a ResponseWriter of another middleware, which has no methods of its own: http.ResponseController finds
// what is behind it.
type unwrapped struct{ http.ResponseWriter }

func (w unwrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// The handlers of web sockets may return and leave the connection to goroutines.
func TestAHijackedConnectionHoldsThePlaceUntilItIsClosed(t *testing.T) {
	for name, test := range map[string]struct {
		panics  bool
		wrapped bool
		send    []func(*http.Request)
	}{
		"returns":               {send: []func(*http.Request){upgraded}},
		"panics":                {panics: true, send: []func(*http.Request){upgraded}},
		"without an offer":      {}, // clients can't choose that they hold no place
		"behind another writer": {wrapped: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conns := make(chan net.Conn, 1)
				s := serve(t, httplimit.Config{}, func(w http.ResponseWriter, r *http.Request) {
					conn, rw, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
					rw.Flush()
					conns <- conn
					if test.panics {
						panic(http.ErrAbortHandler)
					}
				})
				if limited := s.server.Handler; test.wrapped {
					s.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { limited.ServeHTTP(unwrapped{w}, r) })
				}
				res, err := s.send(t.Context(), test.send...)
				require.NoError(t, err)
				require.Equal(t, 101, res.StatusCode)
				conn := <-conns
				defer conn.Close() // no goroutine is left if the test fails
				time.Sleep(time.Minute)
				require.Equal(t, test.panics, s.inUse() == 0)
				require.NoError(t, conn.Close())
				require.Zero(t, s.inUse())
			})
		})
	}
}
