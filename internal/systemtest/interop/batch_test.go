package interop_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
)

func testBatch[T codec.Value](t *testing.T, s *suite[T]) {
	counter, buffer, missing := s.key(t, "counter"), s.key(t, "buffer"), s.key(t, "missing")
	var b throttr.Batch[T]
	done := []throttr.Reply[T]{
		b.Insert(counter, 5, s.ttl),
		b.Update(counter, codec.Quota, codec.Increase, 2),
		b.Update(counter, codec.TimeToLive, codec.Patch, 100),
		b.Set(buffer, []byte("hello"), s.ttl),
	}
	query, get, queryMissing := b.Query(counter), b.Get(buffer), b.Query(missing)
	done = append(done, b.Purge(counter), b.Purge(buffer))
	again := b.Purge(counter)
	require.NoError(t, s.client.Do(s.ctx, &b))
	for _, r := range done {
		succeeds(t)(r.OK())
	}
	fails(t)(again.OK())
	c, ok, err := query.Counter()
	succeeds(t)(ok, err)
	require.Equal(t, T(7), c.Quota)
	require.LessOrEqual(t, c.TTL.Amount, T(100))
	v, ok, err := get.Buffer()
	succeeds(t)(ok, err)
	require.Equal(t, "hello", string(v.Value))
	fails(t)(found(queryMissing.Counter()))
}

// testPipelining makes 2,000 requests from 50 goroutines. Each goroutine checks the responses
// about a counter of its own, and increases one that all share.
func testPipelining[T codec.Value](t *testing.T, s *suite[T]) {
	const goroutines, rounds = 50, 10
	shared := s.key(t, "shared")
	succeeds(t)(s.client.Insert(s.ctx, shared, 0, s.ttl))
	var callers sync.WaitGroup
	for g := range goroutines {
		own := s.key(t, strconv.Itoa(g))
		callers.Go(func() {
			if ok, err := s.client.Insert(s.ctx, own, T(g), s.ttl); !ok || err != nil {
				t.Errorf("insert: %v %v", ok, err)
			}
			for r := range rounds {
				for _, k := range []string{own, shared} {
					if ok, err := s.client.Update(s.ctx, k, codec.Quota, codec.Increase, 1); !ok || err != nil {
						t.Errorf("update: %v %v", ok, err)
					}
				}
				for range 2 {
					c, ok, err := s.client.Query(s.ctx, own)
					if want := T(g + r + 1); !ok || err != nil || c.Quota != want {
						t.Errorf("query: %d, want %d; %v %v", c.Quota, want, ok, err)
					}
				}
			}
		})
	}
	callers.Wait()
	n := uint64(goroutines * rounds)
	require.Equal(t, T(n), s.quota(t, shared), "the number of UPDATEs, modulo the value size")
}
