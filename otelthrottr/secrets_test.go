package otelthrottr_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/entities"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
	"github.com/throttr-go/throttr/window"
)

const secret = "alice@example.com"

// telling returns the error of a call, which tells its key.
func telling(key string) error { return fmt.Errorf("store: no place for %q", key) }

// teller returns a backend that fails with errors that tell the key, as make makes them.
func teller(b throttr.Backend, make func(error) error) throttr.Backend {
	return testkit.Hooked{Backend: b, Before: func(_ context.Context, takes ...window.Take) error {
		return make(telling(takes[0].Key))
	}}
}

// keeper is a backend that grants each take, and fails to give it back.
type keeper struct{ throttr.Backend }

func (keeper) Take(_ context.Context, _ string, _ window.Limit, n uint64) (window.Window, error) {
	return window.Window{Count: n, Left: time.Minute, ExpiresAt: time.Now().Add(time.Minute), ID: 1}, nil
}

func (keeper) GiveBack(_ context.Context, key string, _ window.Limit, _ uint64, _ int64) (bool, error) {
	return false, telling(key)
}

// opaque is an error of a type of its own, whose text tells the key and which wraps nothing.
type opaque struct{ error }

// failingBackends returns one that works, one that only grants, and others that fail in many ways.
func failingBackends(t *testing.T) map[string]throttr.Backend {
	working := memory.New()
	t.Cleanup(func() { working.Close() })
	all := map[string]throttr.Backend{"working": working, "grants": keeper{working}}
	for name, make := range map[string]func(error) error{
		"plain":    func(err error) error { return err },
		"wrapped":  func(err error) error { return fmt.Errorf("%w: %w", err, throttr.ErrConnLost) },
		"joined":   func(err error) error { return errors.Join(err, err) },
		"opaque":   func(err error) error { return opaque{err} },
		"request":  func(err error) error { return &throttr.RequestError{Call: "hit", Key: secret, Server: "s", Err: err} },
		"canceled": func(err error) error { return fmt.Errorf("%w: %w", err, context.Canceled) },
		"range":    func(err error) error { return &throttr.RangeError{Field: "limit", Value: err.Error()} },
		"full":     func(err error) error { return fmt.Errorf("%w: %w", err, throttr.ErrFull) },
	} {
		all["teller: "+name] = teller(working, make)
	}
	return all
}

// callAll makes all calls of a limiter that an observer sees, with a secret as the key.
func callAll(ctx context.Context, limiter *throttr.RateLimit) {
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	ctx = entities.WithMetadata(ctx, map[string]any{"user": secret, secret: 1})
	for _, most := range []uint64{0, 1, 10} {
		l := throttr.Limit{Name: "api", Max: most, Scale: time.Minute}
		for range 2 {
			limiter.Hit(ctx, secret, time.Minute, most)
			limiter.HitN(ctx, secret, l, 3)
			limiter.Take(ctx, secret, l, 1)
			limiter.Charge(ctx, secret, l, 1)
			limiter.TakeAll(ctx, l.For(secret, 1), l.For(secret, 1))
			limiter.Wait(short, secret, l, 1)
			limiter.Peek(ctx, secret, l, 1)
		}
		for _, used := range []uint64{0, 1, 9} {
			if rv, ok, err := limiter.Reserve(ctx, l.For(secret, 1)); err == nil && ok {
				rv.Commit(ctx, used)
			}
			if rv, ok, err := limiter.Reserve(ctx, l.For(secret, 1)); err == nil && ok {
				rv.Cancel(ctx)
			}
		}
		operations := entities.New(limiter)
		operations.Hit(ctx, secret, l)
		operations.Wait(short, secret, l, 1)
		operations.Reset(ctx, secret, l)
		limiter.Forget(ctx, secret, l)
	}
	limiter.Reset(ctx, secret, time.Minute)
	limiter.Hit(ctx, secret, 1, 1) // 1 ns is no scale
	limiter.Reset(ctx, secret, 1)
	for _, hits := range []bool{false, true} {
		m, err := httplimit.New(limiter, httplimit.Config{
			Limits: []throttr.Limit{httplimit.PerHour(1)}, PlainKeys: true, CountRefusals: hits,
			Key: func(*http.Request) string { return secret },
		})
		if err == nil {
			for range 3 {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
				m(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
			}
		}
	}
}

// exported returns all that telemetry exports, as text.
func (tel *telemetry) exported() string {
	var text strings.Builder
	for _, s := range tel.spans.GetSpans() {
		fmt.Fprintf(&text, "%s %+v\n", s.Name, s.Status)
		fmt.Fprintln(&text, s.Attributes)
		for _, e := range s.Events {
			fmt.Fprintln(&text, e.Name, e.Attributes)
		}
	}
	var all metricdata.ResourceMetrics
	require.NoError(tel.t, tel.reader.Collect(context.Background(), &all))
	data, err := json.Marshal(all.ScopeMetrics)
	require.NoError(tel.t, err)
	text.Write(data)
	return text.String()
}

// Without WithIdentity, nothing that is exported has a key, an entity or metadata, whatever fails.
func TestKeysAreExportedOnlyWithIdentity(t *testing.T) {
	options := map[string][]throttr.Option{
		"return errors": nil,
		"allow":         {throttr.WithPolicy(throttr.AllowHits)},
		"deny":          {throttr.WithPolicy(throttr.DenyHits), throttr.WithTimeout(50 * time.Millisecond)},
		"fallback":      {throttr.WithFallback(teller(memory.New(memory.WithCleanPeriod(0)), func(err error) error { return err }))},
	}
	for name, backend := range failingBackends(t) {
		for policy, opts := range options {
			for _, spans := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", policy, ", spans ", spans), func(t *testing.T) {
					for _, identity := range []bool{false, true} {
						var more []otelthrottr.Option
						if spans {
							more = append(more, otelthrottr.WithSpans())
						}
						if identity {
							more = append(more, otelthrottr.WithIdentity())
						}
						tel := newTelemetry(t, more...)
						ctx, span := tel.tracers.Tracer("test").Start(t.Context(), "request")
						callAll(ctx, throttr.NewRateLimit(backend, append(opts, throttr.WithObserver(tel.observe))...))
						span.End()
						if text := tel.exported(); identity {
							require.Contains(t, text, secret, "the test sees keys")
							require.Contains(t, text, "throttr.metadata.user")
						} else {
							require.NotContains(t, text, "alice")
							require.Contains(t, text, "throttr.hit")
						}
					}
				})
			}
		}
	}
}

// The cause of an error says more than its type, and never what it was about.
func TestTheMessageOfAnErrorIsItsCause(t *testing.T) {
	for want, errs := range map[string][]error{
		throttr.ErrConnLost.Error():      {&throttr.RequestError{Key: secret, Err: throttr.ErrConnLost}},
		context.Canceled.Error():         {fmt.Errorf("key %q: %w", secret, context.Canceled)},
		context.DeadlineExceeded.Error(): {&throttr.DeadlineError{Key: secret}},
		throttr.ErrFull.Error():          {fmt.Errorf("%w: %q", throttr.ErrFull, secret)},
		"connection refused":             {fmt.Errorf("dial %q: %w", secret, syscall.ECONNREFUSED)},
		"*errors.errorString":            {errors.New(secret), fmt.Errorf("%w: %w", errors.New(secret), errDown), errors.Join(errDown, opaque{errDown})},
		"*throttr.CostError":             {&throttr.CostError{Key: secret}},
		"otelthrottr_test.opaque":        {opaque{errors.New(secret)}},
	} {
		for _, err := range errs {
			tel := newTelemetry(t, otelthrottr.WithSpans())
			tel.observe(t.Context(), hit(throttr.EventFailed, func(e *throttr.Event) { e.Err = err }))
			require.Equal(t, want, tel.spans.GetSpans()[0].Status.Description)
			tel = newTelemetry(t, otelthrottr.WithSpans(), otelthrottr.WithIdentity())
			tel.observe(t.Context(), hit(throttr.EventFailed, func(e *throttr.Event) { e.Err = err }))
			require.Equal(t, err.Error(), tel.spans.GetSpans()[0].Status.Description)
		}
	}
}
