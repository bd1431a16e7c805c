package interop_test

import (
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
