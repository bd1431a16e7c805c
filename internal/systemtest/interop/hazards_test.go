package interop_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/pubsub"
)

// testNeighboursEvents publishes to all connections, which delays other programs, while requests are in flight (H21).
func testNeighboursEvents[T codec.Value](t *testing.T, s *suite[T]) {
	key := s.key(t, "counter")
	succeeds(t)(s.client.Insert(s.ctx, key, 1, s.ttl))
	neighbour := s.connect(t)
	var all sync.WaitGroup
	failed := make(chan error, 50)
	for range cap(failed) {
		all.Go(func() {
			for range 20 {
				if _, ok, err := s.client.Query(s.ctx, key); err != nil || !ok {
					failed <- fmt.Errorf("%v %w", ok, err)
					return
				}
			}
		})
	}
	publish := func() {
		for range 1000 {
			_, err := neighbour.Publish(s.ctx, pubsub.All, []byte("event"))
			require.NoError(t, err)
		}
	}
	publish()
	all.Wait()
	require.Empty(t, failed)
	before := s.client.Stats().Servers[0].Events // some come before a connection has unsubscribed
	publish()
	_, _, err := s.client.Query(s.ctx, key)
	require.NoError(t, err)
	require.Less(t, s.client.Stats().Servers[0].Events-before, uint64(100), "connections have unsubscribed")
	require.Zero(t, s.client.Stats().Servers[0].Failures)
}

// testPurgedMeanwhile counts in windows whose records another client purges (H19).
func testPurgedMeanwhile[T codec.Value](t *testing.T, s *suite[T]) {
	key := s.key(t, "counter")
	neighbour := s.connect(t)
	ctx, cancel := context.WithTimeout(s.ctx, 300*time.Millisecond)
	defer cancel()
	var purging sync.WaitGroup
	purging.Go(func() {
		for ctx.Err() == nil {
			neighbour.Purge(s.ctx, key)
		}
	})
	found := 0
	for ctx.Err() == nil {
		_, err := s.client.Insert(s.ctx, key, 7, s.ttl)
		require.NoError(t, err)
		c, ok, err := s.client.Query(s.ctx, key)
		require.NoError(t, err)
		if ok {
			found++
			require.EqualValues(t, 7, c.Quota)
			require.LessOrEqual(t, c.TTL.Amount, s.ttl.Amount)
		}
	}
	purging.Wait()
	require.Positive(t, found)
	require.Zero(t, s.client.Stats().Servers[0].Failures, "no connection was given up")
}

// testClientsThatEnd closes clients in the midst of their requests, which must not make the server slower (H16).
func testClientsThatEnd[T codec.Value](t *testing.T, s *suite[T]) {
	before := s.serviceTime(t)
	for range 25 {
		var ending sync.WaitGroup
		for range 4 {
			ending.Go(func() {
				client, err := throttr.Connect[T](s.ctx, throttr.Config{Servers: []string{s.addr}})
				if err != nil {
					t.Error(err)
					return
				}
				var all sync.WaitGroup
				for range 64 {
					all.Go(func() { client.Query(s.ctx, s.run) })
				}
				time.Sleep(100 * time.Microsecond)
				client.Close()
				all.Wait()
			})
		}
		ending.Wait()
	}
	after := s.serviceTime(t)
	t.Logf("a request takes the server %v before and %v after 100 clients", before, after)
	// 6,400 responses that are left unread would make it 11 µs more.
	require.Less(t, after, before+6*time.Microsecond)
}

// serviceTime measures what each of many requests takes the server.
func (s *suite[T]) serviceTime(t *testing.T) time.Duration {
	t.Helper()
	least := func(n int) time.Duration {
		shortest := time.Hour
		for range 50 {
			var b throttr.Batch[T]
			for range n {
				b.Query(s.run)
			}
			start := time.Now()
			require.NoError(t, s.client.Do(s.ctx, &b))
			shortest = min(shortest, time.Since(start))
		}
		return shortest
	}
	one := least(1)
	return max(0, least(64)-one) / 63
}
