package throttr_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

// logged returns what LogTo logs for an event with the given minimum level, without the time.
func logged(ctx context.Context, level slog.Level, e throttr.Event) string {
	var out bytes.Buffer
	throttr.LogTo(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: noTime}))).Observe(ctx, e)
	return out.String()
}

func noTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func TestLogLevelsAndAttributes(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		e    throttr.Event
		want string
	}{
		{"allowed", nil, throttr.Event{
			Kind: throttr.EventAllowed, Key: "k", Scale: time.Minute, Increment: 2, Duration: time.Millisecond,
			Result: throttr.Result{Allowed: true, Count: 3, Limit: 5, Remaining: 2, ResetAt: time.Unix(9, 0)},
		}, `level=DEBUG msg="rate limit: allowed" key=k scale=1m0s took=1ms limit=5 increment=2 count=3`},
		{"denied", nil, throttr.Event{
			Kind: throttr.EventDenied, Key: "k", Scale: time.Minute, Increment: 1, Duration: time.Millisecond,
			Result: throttr.Result{Count: 6, Limit: 5, RetryAfter: 3 * time.Second},
		}, `level=INFO msg="rate limit: denied" key=k scale=1m0s took=1ms limit=5 increment=1 count=6 retry_after=3s`},
		{"denied by a limit of 0", nil, throttr.Event{
			Kind: throttr.EventDenied, Scale: time.Minute, Increment: 1, Result: throttr.Result{Count: 1, RetryAfter: time.Second},
		}, `level=INFO msg="rate limit: denied" key="" scale=1m0s took=0s limit=0 increment=1 count=1 retry_after=1s`},
		{"entity", nil, throttr.Event{
			Kind: throttr.EventAllowed, Key: "4:user:up", Entity: "user", Operation: "up", Scale: time.Minute, Increment: 1,
			Result: throttr.Result{Allowed: true, Count: 1, Limit: 5}, Metadata: map[string]any{"z": 1, "a": "b c", "m": nil},
		}, `level=DEBUG msg="rate limit: allowed" entity=user operation=up scale=1m0s took=0s limit=5 increment=1 count=1 metadata.a="b c" metadata.m=<nil> metadata.z=1`},
		{"allowed by a policy", nil, throttr.Event{
			Kind: throttr.EventAllowed, Key: "k", Scale: time.Minute, Increment: 1,
			Result: throttr.Result{Allowed: true, Limit: 5, Degraded: true}, Err: errDown,
		}, `level=WARN msg="rate limit: allowed" key=k scale=1m0s took=0s limit=5 increment=1 count=0 degraded=true error=down`},
		{"denied by a policy", nil, throttr.Event{
			Kind: throttr.EventDenied, Key: "k", Scale: time.Minute, Increment: 1,
			Result: throttr.Result{Limit: 5, RetryAfter: time.Second, Degraded: true}, Err: errDown,
		}, `level=WARN msg="rate limit: denied" key=k scale=1m0s took=0s limit=5 increment=1 count=0 retry_after=1s degraded=true error=down`},
		{"failed", nil, throttr.Event{
			Kind: throttr.EventFailed, Key: "k", Scale: time.Minute, Increment: 1, Result: throttr.Result{Limit: 5}, Err: errDown,
		}, `level=ERROR msg="rate limit: failed" key=k scale=1m0s took=0s limit=5 increment=1 error=down`},
		{"a failed Reset", nil, throttr.Event{
			Kind: throttr.EventFailed, Key: "k", Scale: time.Minute, Err: errDown,
		}, `level=ERROR msg="rate limit: failed" key=k scale=1m0s took=0s error=down`},
		{"canceled by the caller", canceled, throttr.Event{
			Kind: throttr.EventFailed, Key: "k", Scale: time.Minute, Increment: 1, Result: throttr.Result{Limit: 5}, Err: canceled.Err(),
		}, `level=INFO msg="rate limit: failed" key=k scale=1m0s took=0s limit=5 increment=1 error="context canceled"`},
		{"deadline of the caller", late, throttr.Event{
			Kind: throttr.EventFailed, Key: "k", Scale: time.Minute, Increment: 1, Result: throttr.Result{Limit: 5}, Err: late.Err(),
		}, `level=ERROR msg="rate limit: failed" key=k scale=1m0s took=0s limit=5 increment=1 error="context deadline exceeded"`},
		{"reset", nil, throttr.Event{
			Kind: throttr.EventReset, Key: "k", Scale: time.Minute, Duration: time.Second,
		}, `level=INFO msg="rate limit: reset" key=k scale=1m0s took=1s`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			require.Equal(t, c.want+"\n", logged(c.ctx, slog.LevelDebug, c.e))
		})
	}
}

func TestLogSkipsDisabledLevels(t *testing.T) {
	allowed := throttr.Event{Kind: throttr.EventAllowed, Key: "k"}
	require.NotEmpty(t, logged(t.Context(), slog.LevelDebug, allowed))
	require.Empty(t, logged(t.Context(), slog.LevelInfo, allowed))

	observer := throttr.LogTo(slog.New(slog.DiscardHandler))
	require.Zero(t, testing.AllocsPerRun(100, func() { observer.Observe(t.Context(), allowed) }))
}

func TestLogOfARateLimit(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, nil))
	entities := throttr.NewEntities(throttr.NewRateLimit(inProcess(t), throttr.WithObserver(throttr.LogTo(logger))))
	require.Error(t, entities.Check(t.Context(), "user:42", "upload", 0, time.Minute, map[string]any{"plan": "free"}))

	var record map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &record), "one record: %s", out.String())
	for k, want := range map[string]any{
		"level": "INFO", "msg": "rate limit: denied", "entity": "user:42", "operation": "upload",
		"scale": float64(time.Minute), "limit": 0.0, "increment": 1.0, "count": 1.0,
		"metadata": map[string]any{"plan": "free"},
	} {
		require.Equal(t, want, record[k], k)
	}
	require.InDelta(t, time.Minute, record["retry_after"], float64(time.Second))
	require.Contains(t, record, "took")
	require.NotContains(t, record, "key")
	require.NotContains(t, record, "degraded")
	require.NotContains(t, record, "error")
}

// recordKeeper is a handler that keeps records, as handlers do that send them later.
type recordKeeper struct {
	slog.Handler
	records []slog.Record
}

func (k *recordKeeper) Handle(_ context.Context, r slog.Record) error {
	k.records = append(k.records, r)
	return nil
}

func TestLogRecordsHoldACopyOfTheMetadata(t *testing.T) {
	var out bytes.Buffer
	text := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: noTime})
	k := &recordKeeper{Handler: text}
	metadata := map[string]any{"request": 7}
	throttr.LogTo(slog.New(k)).Observe(t.Context(), throttr.Event{Kind: throttr.EventDenied, Metadata: metadata})
	metadata["request"] = 8
	require.Len(t, k.records, 1)
	require.NoError(t, text.Handle(t.Context(), k.records[0]))
	require.Contains(t, out.String(), "metadata.request=7\n")
}
