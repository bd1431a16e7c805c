package frameworks_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/examples/frameworks"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

// site is a program with two routes: / is limited and says who was counted, /health is not.
type site func(t *testing.T, limiter *throttr.RateLimit) (url string)

var sites = map[string]site{"chi": chiSite, "echo": echoSite, "gin": ginSite, "fiber": fiberSite, "connect": connectSite}

// limits are those of all of them.
var limits = []throttr.Limit{httplimit.PerHour(2)}

func middleware(t *testing.T, limiter *throttr.RateLimit) *httplimit.Middleware {
	m, err := httplimit.NewMiddleware(limiter, httplimit.Config{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newGate(t *testing.T, limiter *throttr.RateLimit) *admission.Gate {
	g, err := admission.New(limiter, admission.Config{Limits: limits, PlainKeys: true})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// hello is the response to a request that was counted.
func hello(d admission.Decision, ok bool) string {
	if !ok {
		return "not counted"
	}
	return "hello, " + d.Key
}

func chiSite(t *testing.T, limiter *throttr.RateLimit) string {
	router := chi.NewRouter()
	router.Get("/health", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	router.Group(func(limited chi.Router) {
		frameworks.Chi(limited, middleware(t, limiter))
		limited.Get("/", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, hello(admission.FromContext(r.Context())))
		})
	})
	return serve(t, router)
}

func echoSite(t *testing.T, limiter *throttr.RateLimit) string {
	e := echo.New()
	e.GET("/health", func(c echo.Context) error { return c.String(http.StatusOK, "ok") })
	e.GET("/", func(c echo.Context) error {
		return c.String(http.StatusOK, hello(admission.FromContext(c.Request().Context())))
	}, frameworks.Echo(middleware(t, limiter)))
	return serve(t, e)
}

func ginSite(t *testing.T, limiter *throttr.RateLimit) string {
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.GET("/health", func(c *gin.Context) { c.String(http.StatusOK, "ok") })
	g.GET("/", frameworks.Gin(newGate(t, limiter)), func(c *gin.Context) {
		c.String(http.StatusOK, hello(admission.FromContext(c.Request.Context())))
	})
	return serve(t, g)
}

func fiberSite(t *testing.T, limiter *throttr.RateLimit) string {
	f := fiber.New(fiber.Config{DisableStartupMessage: true})
	f.Get("/health", func(c *fiber.Ctx) error { return c.SendString("ok") })
	f.Get("/", frameworks.Fiber(newGate(t, limiter)), func(c *fiber.Ctx) error {
		return c.SendString(hello(admission.FromContext(c.UserContext())))
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Listener(l) }()
	t.Cleanup(func() {
		if err := f.Shutdown(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return "http://" + l.Addr().String()
}

// connectSite has the methods /Hello, which is limited, and /Health.
func connectSite(t *testing.T, limiter *throttr.RateLimit) string {
	mux := http.NewServeMux()
	get := connect.WithIdempotency(connect.IdempotencyNoSideEffects)
	mux.Handle("/Hello", connect.NewUnaryHandlerSimple("/Hello", func(ctx context.Context, _ *emptypb.Empty) (*wrapperspb.StringValue, error) {
		return wrapperspb.String(hello(admission.FromContext(ctx))), nil
	}, get, connect.WithInterceptors(frameworks.Connect(newGate(t, limiter)))))
	mux.Handle("/Health", connect.NewUnaryHandlerSimple("/Health", func(context.Context, *emptypb.Empty) (*wrapperspb.StringValue, error) {
		return wrapperspb.String("ok"), nil
	}, get))
	unquoted := func(w http.ResponseWriter, r *http.Request) { // the responses as the other sites have them
		r.URL.Path = map[string]string{"/": "/Hello", "/health": "/Health"}[r.URL.Path]
		r.URL.RawQuery = "connect=v1&encoding=json&message={}"
		r.Header.Del("Accept-Encoding")
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, r)
		maps.Copy(w.Header(), rec.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		var text string
		var failed struct{ Message string }
		if json.Unmarshal(rec.Body.Bytes(), &text) != nil && json.Unmarshal(rec.Body.Bytes(), &failed) != nil {
			t.Error(rec.Body)
		}
		io.WriteString(w, text+failed.Message)
	}
	return serve(t, http.HandlerFunc(unquoted))
}

// serve serves a handler until the end of the test, and returns the URL.
func serve(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// get returns the response to a request, and its body.
func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestEachFrameworkServesAndDenies(t *testing.T) {
	for name, start := range sites {
		t.Run(name, func(t *testing.T) {
			backend := memory.New()
			defer backend.Close()
			limiter := throttr.NewRateLimit(backend)
			url := start(t, limiter)
			for i, want := range []struct {
				status    int
				body      string
				rateLimit string
			}{
				{200, "hello, 127.0.0.1", `"hour";r=1;t=3600`},
				{200, "hello, 127.0.0.1", `"hour";r=0;t=3600`},
				{429, "Too many requests. Try again in 3600 s.", `"hour";r=0;t=3600`},
				{429, "Too many requests. Try again in 3600 s.", `"hour";r=0;t=3600`},
			} {
				res, body := get(t, url)
				if res.StatusCode != want.status || strings.TrimSpace(body) != want.body || res.Header.Get("RateLimit") != want.rateLimit {
					t.Errorf("request %d: %d %q, RateLimit: %s, want %+v", i+1, res.StatusCode, body, res.Header.Get("RateLimit"), want)
				}
				if retry := res.Header.Get("Retry-After"); (retry != "") != (want.status == 429) {
					t.Errorf("request %d: Retry-After: %q", i+1, retry)
				}
			}
			if res, body := get(t, url+"/health"); res.StatusCode != 200 || body != "ok" || res.Header.Get("RateLimit") != "" {
				t.Errorf("a route without a limit: %d %q", res.StatusCode, body)
			}
			if err := newGate(t, limiter).Reset(t.Context(), "127.0.0.1"); err != nil {
				t.Fatal(err)
			}
			if res, _ := get(t, url); res.StatusCode != 200 {
				t.Errorf("after Reset: %d", res.StatusCode)
			}
		})
	}
}
