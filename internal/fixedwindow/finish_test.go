package fixedwindow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// A refused take is given back even if its caller does not wait for that. What follows finds the room.
func TestCallersDoNotWaitForGiveBacksLongerThanTheirContext(t *testing.T) {
	const scale, patience = time.Hour, 200 * time.Millisecond
	for _, a := range []window.Algorithm{window.FixedWindow, window.SlidingWindow} {
		for name, call := range map[string]func(ctx context.Context, b *Backend[uint16]) (refused bool, err error){
			"Take": func(ctx context.Context, b *Backend[uint16]) (bool, error) {
				w, _, err := b.Take(ctx, "k", limitOf(a, scale, 10), 5)
				return w.Refused, err
			},
			"TakeAll": func(ctx context.Context, b *Backend[uint16]) (bool, error) {
				takes := []window.Take{limitOf(a, scale, 10).For("a", 5), limitOf(a, scale, 10).For("k", 5)}
				granted, _, err := b.TakeAll(ctx, takes, make([]window.Window, 2))
				return !granted, err
			},
		} {
			t.Run(a.String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := inMemory(t)
					var backends []*Backend[uint16]
					for range 2 {
						o := options[uint16](t, srv)
						backends = append(backends, start(t, o))
					}
					b, other := backends[0], backends[1]
					for _, key := range []string{"a", "k"} {
						w, _, err := b.Take(t.Context(), key, limitOf(a, scale, 10), 1)
						require.NoError(t, err)
						require.False(t, w.Refused)
					}
					w, _, err := other.Take(t.Context(), "k", limitOf(a, scale, 10), 6) // b does not know of it
					require.NoError(t, err)
					require.False(t, w.Refused)

					remove := srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Skip: skipOf(name), Delay: 400 * time.Millisecond})
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					began := time.Now()
					refused, err := call(ctx, b)
					require.NoError(t, err)
					require.True(t, refused)
					require.LessOrEqual(t, time.Since(began), patience)
					time.Sleep(10 * time.Second)
					remove()
					w, _, err = other.Peek(t.Context(), "k", limitOf(a, scale, 1), 0)
					require.NoError(t, err)
					require.EqualValues(t, 7, w.Count)
					w, _, err = other.Peek(t.Context(), "a", limitOf(a, scale, 1), 0)
					require.NoError(t, err)
					require.EqualValues(t, 1, w.Count)
				})
			})
		}
	}
}

// skipOf returns how many UPDATEs a call makes before it gives back.
func skipOf(call string) int {
	if call == "TakeAll" {
		return 2
	}
	return 1
}
