package throttr_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestOnlyReadsAreSentAgain(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	for op, ask := range map[codec.Op]func(context.Context) error{
		codec.OpStat:   func(ctx context.Context) error { _, _, err := client.Stat(ctx, "k"); return err },
		codec.OpInfo:   func(ctx context.Context) error { _, err := client.Info(ctx); return err },
		codec.OpWhoAmI: func(ctx context.Context) error { _, err := client.WhoAmI(ctx); return err },
	} {
		before := srv.Requests(op)
		srv.Inject(mockserver.Fault{Op: op, Times: 1, Disconnect: true})
		require.NoError(t, ask(t.Context()), op)
		want := 2
		if op == codec.OpWhoAmI {
			want++ // of the handshake of the next connection
		}
		require.Equal(t, want, srv.Requests(op)-before)
	}
	srv.Inject(mockserver.Fault{Op: codec.OpPublish, Times: 1, Disconnect: true})
	_, err := client.Publish(t.Context(), "c", nil)
	require.ErrorIs(t, err, throttr.ErrConnLost)
	require.Equal(t, 1, srv.Requests(codec.OpPublish))
}
