package pubsub_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// A server sends EVENTs to connections that only make requests, too: each connection is
// subscribed to "*".
func TestEventsDoNotAffectRequests(t *testing.T) {
	t.Run("uint8", testEventsDoNotAffectRequests[uint8])
	t.Run("uint16", testEventsDoNotAffectRequests[uint16])
	t.Run("uint32", testEventsDoNotAffectRequests[uint32])
	t.Run("uint64", testEventsDoNotAffectRequests[uint64])
}

func testEventsDoNotAffectRequests[T codec.Value](t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()))
		client := testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1}))
		events := uint64(0)
		publish := func(channel string, payload []byte) {
			require.Equal(t, 1, srv.Publish(channel, payload))
			events++
		}
		publish("*", nil) // before any request
		synctest.Wait()
		require.Equal(t, events, testkit.ServerStats(client).Events)

		const callers = 200
		for i := range callers {
			srv.Set(fmt.Sprint(i), uint64(i), time.Minute)
		}
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		largest := bytes.Repeat([]byte{1}, min(7000, int(uint64(^T(0))&(1<<20-1))))
		for _, split := range []int{0, 1, 5} {
			srv.Split(split)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					c, ok, err := client.Query(t.Context(), fmt.Sprint(i))
					if err != nil || !ok || c.Quota != T(i) {
						t.Errorf("%d: %v %v %v", i, c, ok, err)
					}
				})
				if i%20 == 0 {
					publish("", []byte{0x19, 0x19, 0, 1})
					synctest.Wait()
					publish("a channel", largest)
				}
			}
			all.Wait()
			publish("*", []byte("between requests"))
		}
		_, _, err := client.Query(t.Context(), "0")
		require.NoError(t, err)
		s := testkit.ServerStats(client)
		require.Equal(t, events, s.Events)
		require.EqualValues(t, 1, s.Dials)
		require.Zero(t, s.Failures)
	})
}
