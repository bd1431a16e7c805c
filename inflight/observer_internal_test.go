package inflight

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/memory"
)

// A Hold that ends before the observer knows of it is told as any other.
func TestObserverIsToldOfEachEnd(t *testing.T) {
	b := memory.New()
	defer b.Close()
	var kinds []Kind
	l := New(b, WithObserver(func(_ context.Context, e Event) { kinds = append(kinds, e.Kind) }))
	defer l.Close()
	for _, end := range []func(h *Hold){
		func(h *Hold) { h.end(lost); l.decided(h, true, nil) },
		func(h *Hold) { l.decided(h, true, nil); h.end(lost) },
		func(h *Hold) { h.end(released); l.decided(h, false, context.Canceled) },
	} {
		end(&Hold{limiter: l, ctx: t.Context(), want: want{pump: &keyPump{}}, about: &about{ctx: t.Context()}})
	}
	require.Equal(t, []Kind{Acquired, Lost, Acquired, Lost, Failed}, kinds)
}
