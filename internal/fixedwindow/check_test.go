package fixedwindow

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

func TestRangeErrorsNameFieldBoundAndSize(t *testing.T) {
	for want, err := range map[string]error{
		"throttr: Scale 1.5s is out of range: 1-byte values hold scales of whole units (1 ns to 1 h) " +
			"whose double and 45 s more are at most 255 units; 2-byte values (uint16) would do": scaleError(math.MaxUint8, 1500*time.Millisecond),
		"throttr: Max 256 is out of range: 1-byte values hold at most 255; " +
			"2-byte values (uint16) would do": checkNumber(math.MaxUint8, "Max", 256),
		"throttr: N 4294967296 is out of range: 4-byte values hold at most 4294967295; " +
			"8-byte values (uint64) would do": checkNumber(math.MaxUint32, "N", 1<<32),
	} {
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, window.ErrRange)
	}
	require.NoError(t, checkNumber(math.MaxUint8, "Max", 255))
}

// connecting is a Server to which the first connection is made while a call asks for the reason why there is none.
type connecting struct{ *pool.Pool }

// Err implements Server.
func (c connecting) Err() error {
	_ = c.Connect(context.Background())
	return c.Pool.Err()
}

// The value size may become known at any time of a call. Limits and numbers are checked by it all the same.
func TestTheValueSizeBecomesKnownDuringACall(t *testing.T) {
	l := fixed(time.Minute, 100)
	long := fixed(1500*time.Millisecond, 100)
	large := fixed(time.Minute, 1000)
	for name, c := range map[string]struct {
		call func(ctx context.Context, b *Backend) error
		want string // the field that is out of range
	}{
		"hit":          {func(ctx context.Context, b *Backend) error { return errOf(b.Hit(ctx, "k", l, 1000)) }, "N"},
		"hit, scale":   {func(ctx context.Context, b *Backend) error { return errOf(b.Hit(ctx, "k", long, 1)) }, "Scale"},
		"hit, max":     {func(ctx context.Context, b *Backend) error { return errOf(b.Hit(ctx, "k", large, 1)) }, "Max"},
		"take":         {func(ctx context.Context, b *Backend) error { return errOf(b.Take(ctx, "k", l, 1000)) }, "N"},
		"peek":         {func(ctx context.Context, b *Backend) error { return errOf(b.Peek(ctx, "k", l, 1000)) }, "N"},
		"set":          {func(ctx context.Context, b *Backend) error { return errOf(b.Set(ctx, "k", l, 1000)) }, "N"},
		"give back":    {func(ctx context.Context, b *Backend) error { return errOf(b.GiveBack(ctx, "k", l, 1000, 1)) }, "N"},
		"delete":       {func(ctx context.Context, b *Backend) error { return errOf(b.Delete(ctx, "k", long.Scale)) }, "Scale"},
		"take all":     {func(ctx context.Context, b *Backend) error { return takeAll(ctx, b, l.For("k", 1000)) }, "N"},
		"take all, 2":  {func(ctx context.Context, b *Backend) error { return takeAll(ctx, b, l.For("k", 1), long.For("k", 1)) }, "Scale"},
		"charge scale": {func(ctx context.Context, b *Backend) error { return errOf(b.Charge(ctx, "k", long, 1)) }, "Scale"},
		"reset": {func(ctx context.Context, b *Backend) error {
			_, err := b.Reset(ctx, "k", long)
			return err
		}, "Scale"},
		"charge": {func(ctx context.Context, b *Backend) error {
			w, _, err := b.Charge(ctx, "k", l, 1000)
			if w.Count != math.MaxUint8 {
				return fmt.Errorf("%w: the count is %d", err, w.Count)
			}
			return err
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options(t)
				o.Calls = conn.NewCalls(nil)
				srv := inMemory(t, mockserver.WithValueSize(1))
				o.Servers = []Server{connecting{newPool(t, o.Calls, parking.Never, srv.Dial)}}
				o.Names = []string{"server 0"}
				err := c.call(t.Context(), start(t, o))
				if c.want == "" {
					require.NoError(t, err)
					return
				}
				var got *window.RangeError
				require.ErrorAs(t, err, &got)
				require.Equal(t, c.want, got.Field)
				require.Equal(t, 1, got.Size)
			})
		})
	}
}

func errOf[T any](_ T, _ bool, err error) error { return err }

func takeAll(ctx context.Context, b *Backend, takes ...window.Take) error {
	return errOf(b.TakeAll(ctx, takes, make([]window.Window, len(takes))))
}
