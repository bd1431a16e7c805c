package pubsub_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/pubsub"
)

func TestNextReturnsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t)
		s := newClient(t, nil, srv).mustSubscribe(t, "c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		newPublisher(t, srv)("c", "x")
		_, err = s.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "though there is a message")
		require.Equal(t, []string{"x"}, queued(t, s))
	})
}

func TestEachMessageGoesToOneReader(t *testing.T) {
	const readers, messages = 8, 200
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t)
		s := newClient(t, nil, srv).mustSubscribe(t, "c")
		var mu sync.Mutex
		seen := make(map[string]int)
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				for m, err := range s.Messages(t.Context()) {
					if err != nil {
						return
					}
					mu.Lock()
					seen[string(m.Payload)]++
					mu.Unlock()
				}
			})
		}
		publish := newPublisher(t, srv)
		for i := range messages {
			publish("c", fmt.Sprint(i))
		}
		synctest.Wait()
		s.Close()
		all.Wait()
		require.Len(t, seen, messages)
		for payload, n := range seen {
			require.Equal(t, 1, n, payload)
		}
	})
}

func TestMessagesStopsWhenItsCallerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t)
		s := newClient(t, nil, srv).mustSubscribe(t, "c")
		publish := newPublisher(t, srv)
		publish("c", "1")
		publish("c", "2")
		for m, err := range s.Messages(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, "1", string(m.Payload))
			break
		}
		require.Equal(t, []string{"2"}, queued(t, s))
	})
}

func TestGapsAreNeverDropped(t *testing.T) {
	for name, dropNewest := range map[string]bool{"drop oldest": false, "drop newest": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newServer(t)
				s := newClient(t, nil, srv).mustSubscribeWith(t, "c", pubsub.SubscribeOptions{Queue: 2, DropNewest: dropNewest})
				for i := range 5 {
					publish := newPublisher(t, srv)
					for j := range 3 {
						publish("c", fmt.Sprint(i, j))
					}
					synctest.Wait() // a message on its way is lost with the connection
					srv.Disconnect()
					time.Sleep(time.Second)
				}
				require.EqualValues(t, 13, s.Dropped())
				want := []string{"gap", "4 1", "4 2", "gap"}
				if dropNewest {
					want = []string{"0 0", "0 1", "gap"}
				}
				var got []string
				for range want {
					m := next(t, s)
					if m.Gap {
						m.Payload = []byte("gap")
					}
					got = append(got, string(m.Payload))
				}
				require.Equal(t, want, got)
				require.Empty(t, queued(t, s))
			})
		})
	}
}
