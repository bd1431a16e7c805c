package frameworks_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/examples/frameworks"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

// site is a program whose route / is limited, and says who was counted.
type site func(t *testing.T, limiter *throttr.RateLimit) (url string)

var sites = map[string]site{"chi": chiSite, "echo": echoSite, "gin": ginSite, "fiber": fiberSite, "connect": connectSite}

// limits are those of all of them, for an address and for a user.
var limits = []throttr.Limit{httplimit.PerHour(2), {Name: "users", Max: 3, Scale: 24 * time.Hour}}

// plans are those of some users.
var plans = map[string]*admission.Plan{"pro": admission.MustPlan(httplimit.PerHour(5)), "exempt": new(admission.Plan)}

// request returns what a Gate decides on, by the address and the header fields of a request.
func request(remote string, field func(string) string) admission.Request {
	return admission.Request{
		Addr: admission.Addr(remote),
		Keys: map[string]admission.Key{"users": {Text: field("User")}},
		Plan: plans[field("Plan")],
	}
}

func middleware(t *testing.T, limiter *throttr.RateLimit) *httplimit.Middleware {
	m, err := httplimit.NewMiddleware(limiter, httplimit.Config{
		Limits: limits,
		KeyOf: map[string]httplimit.KeyFunc{
			"hour": httplimit.RemoteAddr, "users": func(r *http.Request) string { return r.Header.Get("User") },
		},
		Plan: func(r *http.Request) (*httplimit.Plan, error) { return plans[r.Header.Get("Plan")], nil },
	})
	require.NoError(t, err)
	return m
}

func newGate(t *testing.T, limiter *throttr.RateLimit) *admission.Gate {
	g, err := admission.New(limiter, admission.Config{Limits: limits})
	require.NoError(t, err)
	return g
}

// hello is the response to a request, which may have been counted.
func hello(ctx context.Context) string {
	d, ok := admission.FromContext(ctx)
	if !ok {
		return "not counted"
	}
	return "hello, " + d.Strictest.Key
}

func chiSite(t *testing.T, limiter *throttr.RateLimit) string {
	router := chi.NewRouter()
	frameworks.Chi(router, middleware(t, limiter))
	router.Get("/", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, hello(r.Context())) })
	return serve(t, router)
}

func echoSite(t *testing.T, limiter *throttr.RateLimit) string {
	e := echo.New()
	e.GET("/", func(c echo.Context) error {
		return c.String(http.StatusOK, hello(c.Request().Context()))
	}, frameworks.Echo(middleware(t, limiter)))
	return serve(t, e)
}

func ginSite(t *testing.T, limiter *throttr.RateLimit) string {
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.Use(frameworks.Gin(newGate(t, limiter), func(c *gin.Context) admission.Request {
		return request(c.Request.RemoteAddr, c.GetHeader)
	}))
	g.GET("/", func(c *gin.Context) { c.String(http.StatusOK, hello(c.Request.Context())) })
	return serve(t, g)
}

func fiberSite(t *testing.T, limiter *throttr.RateLimit) string {
	f := fiber.New(fiber.Config{DisableStartupMessage: true})
	f.Use(frameworks.Fiber(newGate(t, limiter), func(c *fiber.Ctx) admission.Request {
		return request(c.Context().RemoteAddr().String(), func(name string) string { return c.Get(name) })
	}))
	f.Get("/", func(c *fiber.Ctx) error { return c.SendString(hello(c.UserContext())) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- f.Listener(l) }()
	t.Cleanup(func() {
		assert.NoError(t, f.Shutdown())
		<-done
	})
	return "http://" + l.Addr().String()
}

// connectSite has the method /Hello.
func connectSite(t *testing.T, limiter *throttr.RateLimit) string {
	handler := connect.NewUnaryHandlerSimple("/Hello", func(ctx context.Context, _ *emptypb.Empty) (*wrapperspb.StringValue, error) {
		return wrapperspb.String(hello(ctx)), nil
	}, connect.WithIdempotency(connect.IdempotencyNoSideEffects), connect.WithInterceptors(
		frameworks.Connect(newGate(t, limiter), func(r connect.AnyRequest) admission.Request {
			return request(r.Peer().Addr, r.Header().Get)
		}),
	))
	unquoted := func(w http.ResponseWriter, r *http.Request) { // the responses as the other sites have them
		r.URL.Path = "/Hello"
		r.URL.RawQuery = "connect=v1&encoding=json&message={}"
		r.Header.Del("Accept-Encoding")
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, r)
		maps.Copy(w.Header(), rec.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		var text string
		var failed struct{ Message string }
		if json.Unmarshal(rec.Body.Bytes(), &text) != nil {
			assert.NoError(t, json.Unmarshal(rec.Body.Bytes(), &failed))
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

// get returns the response to a request of a user with a plan, and its body.
func get(t *testing.T, url, user, plan string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	r.Header.Set("User", user)
	r.Header.Set("Plan", plan)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(body)
}

// Keys, plans and exempt requests are the same in all frameworks, and so are the fields.
func TestEachFrameworkServesAndDenies(t *testing.T) {
	const denied = "Too many requests. Try again in 60 min."
	for name, start := range sites {
		t.Run(name, func(t *testing.T) {
			backend := memory.New()
			defer backend.Close()
			limiter := throttr.NewRateLimit(backend)
			url := start(t, limiter)
			for i, want := range []struct {
				user, plan string
				status     int
				body       string
				rateLimit  string
			}{
				{"", "", 200, "hello, 127.0.0.1", `"hour";r=1;t=3600`},
				{"ann", "", 200, "hello, 127.0.0.1", `"hour";r=0;t=3600, "users";r=2;t=86400`},
				{"ann", "", 429, denied, `"hour";r=0;t=3600, "users";r=2;t=86400`},
				{"ann", "pro", 200, "hello, 127.0.0.1", `"hour";r=2;t=3600`},
				{"ann", "exempt", 200, "not counted", ""},
				{"", "", 429, denied, `"hour";r=0;t=3600`},
			} {
				res, body := get(t, url, want.user, want.plan)
				require.Equal(t, want.status, res.StatusCode, "request %d", i+1)
				require.Equal(t, want.body, strings.TrimSpace(body), "request %d", i+1)
				require.Equal(t, want.rateLimit, res.Header.Get("RateLimit"), "request %d", i+1)
				require.Equal(t, want.status == 429, res.Header.Get("Retry-After") != "", "request %d", i+1)
			}
			require.NoError(t, newGate(t, limiter).Reset(t.Context(), admission.Request{Addr: "127.0.0.1"}))
			res, _ := get(t, url, "", "")
			require.Equal(t, 200, res.StatusCode, "after Reset")
		})
	}
}

// Failures alone are counted, also those that a framework makes of the error of a handler.
func TestTheErrorOfAHandlerIsNotGivenBack(t *testing.T) {
	synctest.Test(t, testErrorsAreNotGivenBack) // so that what is given back in the background is there for the next call
}

func testErrorsAreNotGivenBack(t *testing.T) {
	m, err := httplimit.NewMiddleware(throttr.NewRateLimit(memory.New()), httplimit.Config{
		Limits:   []throttr.Limit{httplimit.PerHour(3)},
		GiveBack: func(_ *http.Request, status int) bool { return status < 400 },
	})
	require.NoError(t, err)
	e := echo.New()
	e.Use(frameworks.Echo(m))
	e.GET("/", func(c echo.Context) error {
		if c.QueryParam("password") != "correct" {
			return echo.NewHTTPError(http.StatusUnauthorized)
		}
		return c.NoContent(http.StatusNoContent)
	})
	var statuses []int
	for _, path := range []string{"/?password=correct", "/", "/", "/?password=correct", "/none", "/?password=correct"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		statuses = append(statuses, w.Code)
	}
	require.Equal(t, []int{204, 401, 401, 204, 404, 429}, statuses)
}

// A service may return one error to all: each response has the fields of its own request.
func TestAnErrorOfAServiceKeepsNoFields(t *testing.T) {
	shared := connect.NewError(connect.CodeNotFound, errors.New("none"))
	call := frameworks.Connect(newGate(t, throttr.NewRateLimit(memory.New())), func(connect.AnyRequest) admission.Request {
		return admission.Request{Addr: "192.0.2.1"}
	})(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return nil, shared })
	for range 2 {
		_, err := call(t.Context(), connect.NewRequest(&emptypb.Empty{}))
		var failed *connect.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, connect.CodeNotFound, failed.Code())
		require.Len(t, failed.Meta().Values("RateLimit"), 1)
	}
	require.Empty(t, shared.Meta(), "the error of the service has no fields")
}
