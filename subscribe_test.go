package throttr_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

func TestSubscribeChecksItsArguments(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	ctx := t.Context()
	for text, call := range map[string]func(){
		"throttr: Client.Subscribe: option 1 is nil":       func() { client.Subscribe(ctx, "c", nil) },
		"throttr: Client.Backend: option 1 is nil":         func() { client.Backend(nil) },
		"pubsub: WithQueue: -1 is not 0 to 16777216":       func() { pubsub.WithQueue(-1) },
		"pubsub: WithQueue: 16777217 is not 0 to 16777216": func() { pubsub.WithQueue(1<<24 + 1) },
		"pubsub: WithOverflow: there is no overflow 2":     func() { pubsub.WithOverflow(2) },
	} {
		require.PanicsWithValue(t, text, call)
	}
	_, err := client.Subscribe(ctx, string(make([]byte, 256)))
	require.ErrorIs(t, err, codec.ErrTooLarge)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = client.Subscribe(canceled, "c")
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, testkit.SafeToRetry(err))
	require.Equal(t, 1, srv.Conns(), "that of requests")
	srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Replace: []byte{0}, Times: 1})
	_, err = client.Subscribe(ctx, "c")
	require.ErrorIs(t, err, pubsub.ErrRefused)
	var failed *throttr.RequestError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, []any{codec.OpSubscribe, srv.Addr(), true}, []any{failed.Op, failed.Server, failed.Sent})
	require.Zero(t, client.Stats().Subscriptions)

	sub := testkit.Subscribe(t, client, "", pubsub.WithQueue(1<<24), pubsub.WithOverflow(pubsub.DropNewest))
	ok, err := client.Publish(ctx, "", []byte("x"))
	require.NoError(t, err)
	require.True(t, ok, "a name may be empty")
	require.Equal(t, "x", string(testkit.Next(t, sub).Payload))
}
