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
		e := throttr.Event{Kind: kind, Key: "k", Scale: time.Minute, Increment: 3, Take: true, Result: throttr.Result{Limit: 5}}
		change(&e)
		tel.Observe(t.Context(), e)
	}
	none := func(*throttr.Event) {}
	event(throttr.EventAllowed, none)
	event(throttr.EventDenied, none)
	event(throttr.EventAllowed, func(e *throttr.Event) { e.Waited, e.Duration = true, time.Minute })
	event(throttr.EventSettled, func(e *throttr.Event) { e.Reserved, e.Increment, e.Result = 3, 0, throttr.Result{} })
	event(throttr.EventSettled, func(e *throttr.Event) { e.Reserved, e.Err = 3, errors.New("down") })
	require.Equal(t, map[string]int64{
		"throttr.degraded=false,throttr.outcome=allowed": 2,
		"throttr.degraded=false,throttr.outcome=denied":  1,
	}, tel.counts("throttr.hits"))
	require.Equal(t, map[string]int64{
		"throttr.outcome=done":                     1,
		"error.type=_OTHER,throttr.outcome=failed": 1,
	}, tel.counts("throttr.settlements"))
	require.Empty(t, tel.counts("throttr.resets"))
}
