package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// newMiddleware returns middleware over a memory backend, and its clock.
func newMiddleware(t *testing.T, cfg httplimit.Config, opts ...throttr.Option) (*httplimit.Middleware, backendtest.Clock) {
	t.Helper()
	clock := backendtest.NewClock()
	backend := memory.New(memory.WithClock(clock.Now), memory.WithCleanPeriod(0))
	t.Cleanup(func() { backend.Close() })
	m, err := httplimit.NewMiddleware(throttr.NewRateLimit(backend, opts...), cfg)
	require.NoError(t, err)
	return m, clock
}

// request sends a request with a header field, and returns the status of the response.
func request(m *httplimit.Middleware, field, value string) int {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(field, value)
	w := httptest.NewRecorder()
	m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})).ServeHTTP(w, r)
	return w.Code
}

// Support sees why a customer is denied, and ends that.
func TestSupportUnblocksACustomer(t *testing.T) {
	m, clock := newMiddleware(t, httplimit.Config{
		Limits: []throttr.Limit{httplimit.PerHour(5), httplimit.PerMinute(2)},
		Key:    func(r *http.Request) string { return r.Header.Get("Account") },
	})
	ann := httplimit.Request{Key: httplimit.Key{Text: "ann"}}
	for _, want := range []int{200, 200, 429} {
		require.Equal(t, want, request(m, "Account", "ann"))
	}
	clock.Advance(10 * time.Second)
	for range 2 { // Peek does not count
		got, err := m.Peek(t.Context(), ann)
		require.NoError(t, err)
		requireOutcomes(t, []httplimit.Outcome{
			{Name: "minute", Key: "ann", Scale: time.Minute, Result: throttr.Result{Count: 2, Limit: 2, RetryAfter: 50 * time.Second, ResetAfter: 50 * time.Second, ResetAt: clock.Now().Add(50 * time.Second)}},
			{Name: "hour", Key: "ann", Scale: time.Hour, Result: throttr.Result{Allowed: true, Count: 2, Limit: 5, Remaining: 3, ResetAfter: time.Hour - 10*time.Second, ResetAt: clock.Now().Add(time.Hour - 10*time.Second)}},
		}, got)
	}
	minute := ann
	minute.Plan = httplimit.MustPlan(httplimit.PerMinute(2))
	require.NoError(t, m.Reset(t.Context(), minute))
	require.Equal(t, 200, request(m, "Account", "ann"))
	got, err := m.Peek(t.Context(), ann)
	require.NoError(t, err)
	require.EqualValues(t, 3, got[1].Count, "the other limit is as it was")

	require.NoError(t, m.Reset(t.Context(), ann))
	for _, key := range []string{"ann", "nobody"} {
		got, err = m.Peek(t.Context(), httplimit.Request{Key: httplimit.Key{Text: key}})
		require.NoError(t, err)
		require.Len(t, got, 2)
		for _, o := range got {
			require.Equal(t, throttr.Result{Allowed: true, Limit: o.Limit, Remaining: o.Limit}, o.Result)
		}
	}
	ann.Plan = httplimit.MustPlan(throttr.Limit{Name: "free", Max: 7, Scale: time.Hour})
	got, err = m.Peek(t.Context(), ann)
	require.NoError(t, err)
	require.EqualValues(t, 7, got[0].Remaining, "a limit of a plan")
	ann.Plan = new(httplimit.Plan)
	got, err = m.Peek(t.Context(), ann)
	require.NoError(t, err)
	require.Empty(t, got, "who is exempt is denied nowhere")
	require.Equal(t, 200, request(m, "Account", "ann"))
	require.NoError(t, m.Reset(t.Context(), ann))
	ann.Plan = nil
	got, err = m.Peek(t.Context(), ann)
	require.NoError(t, err)
	require.EqualValues(t, 1, got[0].Count, "nothing was reset")
	require.Equal(t, m.StoredKey(ann.Key), "client:h"+admission.Digest("ann"))
}

// requireOutcomes compares what outcomes export.
func requireOutcomes(t *testing.T, want, got []httplimit.Outcome) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, o := range got {
		require.Equal(t, want[i], httplimit.Outcome{Name: o.Name, Key: o.Key, Scale: o.Scale, Result: o.Result})
	}
}

func TestPeekAndResetReturnTheErrorsOfTheBackend(t *testing.T) {
	backend := memory.New()
	m, err := httplimit.NewMiddleware(throttr.NewRateLimit(backend), httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(5)}})
	require.NoError(t, err)
	backend.Close()
	_, err = m.Peek(t.Context(), httplimit.Request{})
	require.ErrorIs(t, err, throttr.ErrClosed)
	require.ErrorIs(t, m.Reset(t.Context(), httplimit.Request{}), throttr.ErrClosed)
}

// What a client sends in a header field is in no store, log or event.
func TestKeysFromHeadersAreSeenByNobody(t *testing.T) {
	const secret = "sk-live-0123456789"
	for name, key := range map[string]httplimit.KeyFunc{
		"ByHeader":     httplimit.ByHeader("x-api-key"),
		"a KeyFunc":    func(r *http.Request) string { return r.Header.Get("X-Api-Key") },
		"parts":        func(r *http.Request) string { return throttr.Key(r.Method, r.Header.Get("X-Api-Key")) },
		"a long value": func(r *http.Request) string { return r.Header.Get("X-Api-Key") + string(make([]byte, 500)) },
	} {
		t.Run(name, func(t *testing.T) {
			var events []throttr.Event
			stored := &recorder{}
			m, err := httplimit.NewMiddleware(throttr.NewRateLimit(stored,
				throttr.WithObserver(func(_ context.Context, e throttr.Event) { events = append(events, e) }),
			), httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}, Key: key})
			require.NoError(t, err)
			request(m, "X-Api-Key", secret)
			require.Len(t, stored.keys, 1)
			require.NotContains(t, stored.keys[0], secret)
			require.Len(t, events, 1)
			require.NotContains(t, events[0].Key, secret)
			require.ErrorIs(t, events[0].Err, errDown)
			require.NotContains(t, events[0].Err.Error(), secret)
		})
	}
}

// recorder is a backend that records the keys that it is given, and fails.
type recorder struct {
	window.Unimplemented
	keys []string
}

func (r *recorder) Check(window.Limit) (t window.Traits, err error) { return t, nil }

func (r *recorder) Take(_ context.Context, key string, _ window.Limit, _ uint64) (window.Window, error) {
	r.keys = append(r.keys, key)
	return window.Window{}, &throttr.RequestError{Call: "take", Key: key, Err: errDown}
}

func TestByHeaderIsTheKeyOfAHeader(t *testing.T) {
	key := httplimit.ByHeader("x-api-key")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	require.Empty(t, key(r))
	r.Header.Set("X-Api-Key", "a")
	require.Equal(t, httplimit.HeaderKey("X-API-KEY", "a"), key(r))
	require.NotEqual(t, httplimit.HeaderKey("X-API-KEY", "b"), key(r))
	require.NotEqual(t, httplimit.HeaderKey("Authorization", "a"), key(r))
	require.Contains(t, key(r), "X-Api-Key:")

	m, _ := newMiddleware(t, httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}, Key: key})
	require.Equal(t, 200, request(m, "X-Api-Key", "a"))
	require.Equal(t, 429, request(m, "X-Api-Key", "a"))
	require.Equal(t, 200, request(m, "X-Api-Key", "b"))
	require.NoError(t, m.Reset(t.Context(), httplimit.Request{Key: httplimit.Key{Text: httplimit.HeaderKey("X-API-Key", "a")}}))
	require.Equal(t, 200, request(m, "X-Api-Key", "a"))
}
