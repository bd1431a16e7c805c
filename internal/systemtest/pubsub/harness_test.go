package pubsub_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// newPublisher returns a function that publishes on a connection of its own. The function
// returns when the server has responded.
func newPublisher(t testing.TB, srv *mockserver.Server) func(channel, payload string) {
	t.Helper()
	nc, err := srv.Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	encoder, decoder := codec.NewEncoder[uint16](nc), codec.NewDecoder[uint16](nc)
	return func(channel, payload string) {
		require.NoError(t, encoder.Encode(codec.Publish[uint16]{Channel: []byte(channel), Payload: []byte(payload)}))
		_, err := decoder.Response(codec.KindStatus) // failure if nobody is subscribed
		require.NoError(t, err)
	}
}
