package frameworks_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/examples/frameworks"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

// site is a program with two routes: / is limited and says who was counted, /health is not.
type site func(t *testing.T, m *httplimit.Middleware) (url string)

var sites = map[string]site{"chi": chiSite, "echo": echoSite, "gin": ginSite, "fiber": fiberSite}

// hello is the response to a request that was counted.
func hello(d httplimit.Decision, ok bool) string {
	if !ok {
		return "not counted"
	}
	return "hello, " + d.Key
}

func chiSite(t *testing.T, m *httplimit.Middleware) string {
	router := chi.NewRouter()
	router.Get("/health", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	router.Group(func(limited chi.Router) {
		frameworks.Chi(limited, m)
		limited.Get("/", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, hello(httplimit.FromContext(r.Context())))
		})
	})
	return serve(t, router)
}

func echoSite(t *testing.T, m *httplimit.Middleware) string {
	e := echo.New()
	e.GET("/health", func(c echo.Context) error { return c.String(http.StatusOK, "ok") })
	e.GET("/", func(c echo.Context) error {
		return c.String(http.StatusOK, hello(httplimit.FromContext(c.Request().Context())))
	}, frameworks.Echo(m))
	return serve(t, e)
}

func ginSite(t *testing.T, m *httplimit.Middleware) string {
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.GET("/health", func(c *gin.Context) { c.String(http.StatusOK, "ok") })
	g.GET("/", frameworks.Gin(m), func(c *gin.Context) {
		c.String(http.StatusOK, hello(httplimit.FromContext(c.Request.Context())))
	})
	return serve(t, g)
}

func fiberSite(t *testing.T, m *httplimit.Middleware) string {
	f := fiber.New(fiber.Config{DisableStartupMessage: true})
	f.Get("/health", func(c *fiber.Ctx) error { return c.SendString("ok") })
	f.Get("/", frameworks.Fiber(m), func(c *fiber.Ctx) error {
		return c.SendString(hello(httplimit.FromContext(c.UserContext())))
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
			m, err := httplimit.NewMiddleware(throttr.NewRateLimit(backend), httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(2)}})
			if err != nil {
				t.Fatal(err)
			}
			url := start(t, m)
			for i, want := range []struct {
				status    int
				body      string
				rateLimit string
			}{
				{200, "hello, 127.0.0.1", `"hour";r=1;t=3600`},
				{200, "hello, 127.0.0.1", `"hour";r=0;t=3600`},
				{429, "Too many requests. Try again in 3600 s.\n", `"hour";r=0;t=3600`},
				{429, "Too many requests. Try again in 3600 s.\n", `"hour";r=0;t=3600`},
			} {
				res, body := get(t, url)
				if res.StatusCode != want.status || body != want.body || res.Header.Get("RateLimit") != want.rateLimit {
					t.Errorf("request %d: %d %q, RateLimit: %s, want %+v", i+1, res.StatusCode, body, res.Header.Get("RateLimit"), want)
				}
				if retry := res.Header.Get("Retry-After"); (retry != "") != (want.status == 429) {
					t.Errorf("request %d: Retry-After: %q", i+1, retry)
				}
			}
			if res, body := get(t, url+"/health"); res.StatusCode != 200 || body != "ok" || res.Header.Get("RateLimit") != "" {
				t.Errorf("a route without a limit: %d %q", res.StatusCode, body)
			}
			if err := m.Reset(t.Context(), "127.0.0.1"); err != nil {
				t.Fatal(err)
			}
			if res, _ := get(t, url); res.StatusCode != 200 {
				t.Errorf("after Reset: %d", res.StatusCode)
			}
		})
	}
}
