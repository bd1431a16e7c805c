package otelthrottr_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

func TestTakesAndSettlementsAreCounted(t *testing.T) {
	tel := newTelemetry(t)
	event := func(kind throttr.EventKind, change func(*throttr.Event)) {
		e := throttr.Event{Kind: kind, Call: "take", Key: "k", Limit: throttr.Limit{Max: 5, Scale: time.Minute}, N: 3, Result: throttr.Result{Limit: 5}}
		change(&e)
		tel.observe(t.Context(), e)
	}
	none := func(*throttr.Event) {}
	event(throttr.EventAllowed, none)
	event(throttr.EventDenied, none)
	event(throttr.EventWouldDeny, func(e *throttr.Event) { e.Limit.Shadow = true })
	event(throttr.EventAllowed, func(e *throttr.Event) { e.Call, e.Duration = "wait", time.Minute })
	event(throttr.EventSettled, func(e *throttr.Event) { e.Reserved, e.N, e.Result = 3, 0, throttr.Result{} })
	event(throttr.EventSettled, func(e *throttr.Event) { e.Reserved, e.Err = 3, errors.New("down") })
	require.Equal(t, map[string]int64{
		"throttr.degraded=false,throttr.outcome=allowed":    2,
		"throttr.degraded=false,throttr.outcome=denied":     1,
		"throttr.degraded=false,throttr.outcome=would_deny": 1,
	}, tel.counts("throttr.hits"))
	require.Equal(t, map[string]int64{
		"throttr.outcome=done":                     1,
		"error.type=_OTHER,throttr.outcome=failed": 1,
	}, tel.counts("throttr.settlements"))
	require.Empty(t, tel.counts("throttr.resets"))
}
