package inflight

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/memory"
)

// A Hold that ends before the observer knows of it is told as any other. If the observer panics, nothing is held.
func TestObserverIsToldOfEachEnd(t *testing.T) {
	b := memory.New()
	defer b.Close()
	var kinds []Kind
	var l *Limiter
	during := func() { panic("a mistake") }
	l = New(b, WithObserver(func(_ context.Context, e Event) {
		kinds = append(kinds, e.Kind)
		if e.Kind == Acquired {
			during()
		}
	}))
	require.Panics(t, func() { l.TryAcquire(t.Context(), "k", Limit{Max: 1}, 1) })
	require.Equal(t, Stats{}, l.Stats())
	during = func() { l.Close() }
	h, ok, err := l.TryAcquire(t.Context(), "k", Limit{Max: 1}, 1)
	require.NoError(t, err)
	require.True(t, ok)
	require.False(t, h.Valid())
	require.Equal(t, []Kind{Acquired, Acquired, Released}, kinds)
}
