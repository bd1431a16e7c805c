package interop_test

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
)

func interopCounters[T codec.Value](t *testing.T, in *interop[T]) {
	k := in.key(t, "counter")
	_, ok, err := in.client.Query(in.ctx, k)
	requireFailure(t, ok, err)
	ok, err = in.client.Update(in.ctx, k, codec.Quota, codec.Increase, 1)
	requireFailure(t, ok, err)
	ok, err = in.client.Purge(in.ctx, k)
	requireFailure(t, ok, err)

	ok, err = in.client.Insert(in.ctx, k, 5, in.ttl)
	requireOK(t, ok, err)
	ok, err = in.client.Insert(in.ctx, k, 9, in.ttl)
	requireFailure(t, ok, err)
	require.Equal(t, T(5), in.quota(t, k))

	ok, err = in.client.Update(in.ctx, k, codec.Quota, codec.Increase, 3)
	requireOK(t, ok, err)
	require.Equal(t, T(8), in.quota(t, k))
	ok, err = in.client.Update(in.ctx, k, codec.Quota, codec.Decrease, 2)
	requireOK(t, ok, err)
	require.Equal(t, T(6), in.quota(t, k))
	ok, err = in.client.Update(in.ctx, k, codec.Quota, codec.Decrease, 7)
	requireFailure(t, ok, err)
	require.Equal(t, T(6), in.quota(t, k))
	ok, err = in.client.Update(in.ctx, k, codec.Quota, codec.Patch, 42)
	requireOK(t, ok, err)
	require.Equal(t, T(42), in.quota(t, k))

	ok, err = in.client.Purge(in.ctx, k)
	requireOK(t, ok, err)
	_, ok, err = in.client.Query(in.ctx, k)
	requireFailure(t, ok, err)
	ok, err = in.client.Insert(in.ctx, k, 1, in.ttl) // a PURGE leaves no grace
	requireOK(t, ok, err)
}

func interopBuffers[T codec.Value](t *testing.T, in *interop[T]) {
	buffer, counter := in.key(t, "buffer"), in.key(t, "counter")
	_, ok, err := in.client.Get(in.ctx, buffer)
	requireFailure(t, ok, err)
	for _, value := range []string{"hello", "", strings.Repeat("x", 255)} {
		ok, err = in.client.Set(in.ctx, buffer, []byte(value), in.ttl)
		requireOK(t, ok, err)
		b, ok, err := in.client.Get(in.ctx, buffer)
		requireOK(t, ok, err)
		require.Equal(t, value, string(b.Value))
		require.Equal(t, in.ttl.Unit, b.TTL.Unit)
		require.LessOrEqual(t, b.TTL.Amount, in.ttl.Amount)
	}
	require.Zero(t, in.quota(t, buffer), "QUERY finds a buffer with a quota of 0")
	ok, err = in.client.Insert(in.ctx, buffer, 1, in.ttl)
	requireFailure(t, ok, err)
	ok, err = in.client.Update(in.ctx, buffer, codec.Quota, codec.Increase, 1)
	requireFailure(t, ok, err)

	ok, err = in.client.Insert(in.ctx, counter, 1, in.ttl)
	requireOK(t, ok, err)
	ok, err = in.client.Set(in.ctx, counter, []byte("x"), in.ttl)
	requireFailure(t, ok, err)
	b, ok, err := in.client.Get(in.ctx, counter)
	requireOK(t, ok, err)
	require.Empty(t, b.Value, "GET finds a counter with an empty value")
}

// interopUnits makes a record of each unit in which a value holds some seconds.
func interopUnits[T codec.Value](t *testing.T, in *interop[T]) {
	for unit := codec.Nanoseconds; unit <= codec.Hours; unit++ {
		amount := uint64(time.Minute / unit.Duration())
		amount = max(1, min(amount, uint64(^T(0))))
		ttl := codec.TTL[T]{Amount: T(amount), Unit: unit}
		if ttl.Duration() < 4*time.Second {
			continue // might expire here
		}
		k := in.key(t, "unit:"+unit.String())
		sent := time.Now()
		ok, err := in.client.Insert(in.ctx, k, 1, ttl)
		requireOK(t, ok, err)
		c, ok, err := in.client.Query(in.ctx, k)
		requireOK(t, ok, err)
		took := time.Since(sent)
		require.Equal(t, unit, c.TTL.Unit)
		require.LessOrEqual(t, c.TTL.Amount, ttl.Amount, unit)
		require.GreaterOrEqual(t, c.TTL.Duration(), ttl.Duration()-took-2*unit.Duration(), unit)
		ok, err = in.client.Purge(in.ctx, k)
		requireOK(t, ok, err)
	}
}

func interopMovedTTL[T codec.Value](t *testing.T, in *interop[T]) {
	k := in.key(t, "ttl")
	ok, err := in.client.Insert(in.ctx, k, 1, codec.TTL[T]{Amount: 100, Unit: codec.Seconds})
	requireOK(t, ok, err)
	for _, move := range []struct {
		change codec.Change
		value  T
		want   T // seconds left, at most, and at least some less
	}{
		{codec.Patch, 200, 200}, {codec.Decrease, 50, 150}, {codec.Increase, 60, 210},
	} {
		ok, err = in.client.Update(in.ctx, k, codec.TimeToLive, move.change, move.value)
		requireOK(t, ok, err)
		c, ok, err := in.client.Query(in.ctx, k)
		requireOK(t, ok, err)
		require.LessOrEqual(t, c.TTL.Amount, move.want, move.change)
		require.GreaterOrEqual(t, c.TTL.Amount, move.want-30, move.change)
	}
	_, err = in.client.Update(in.ctx, k, codec.TimeToLive, codec.Decrease, 250)
	require.ErrorIs(t, err, throttr.ErrTTL, "it would end the record")
}

func interopWrap[T codec.Value](t *testing.T, in *interop[T]) {
	k := in.key(t, "wrap")
	ok, err := in.client.Insert(in.ctx, k, ^T(0)-1, in.ttl)
	requireOK(t, ok, err)
	for _, want := range []T{^T(0), 0, 1} {
		ok, err = in.client.Update(in.ctx, k, codec.Quota, codec.Increase, 1)
		requireOK(t, ok, err)
		require.Equal(t, want, in.quota(t, k))
	}
}

func interopKeys[T codec.Value](t *testing.T, in *interop[T]) {
	long := in.run + strings.Repeat("k", codec.MaxKey-len(in.run)-len("0"))
	for i, k := range []string{long, in.run + "\x00\x19\xff", in.run + "ключ"} {
		ok, err := in.client.Insert(in.ctx, k, T(i), in.ttl)
		requireOK(t, ok, err)
		require.Equal(t, T(i), in.quota(t, k))
		ok, err = in.client.Purge(in.ctx, k)
		requireOK(t, ok, err)
	}
	_, err := in.client.Purge(in.ctx, strings.Repeat("k", codec.MaxKey+1))
	require.ErrorIs(t, err, codec.ErrTooLarge)
}

// interopLongestFrame sends a SET that just fits a server's buffer, or as long a one as
// a value can tell the length of.
func interopLongestFrame[T codec.Value](t *testing.T, in *interop[T]) {
	k := in.key(t, "longest")
	frame, err := codec.Set[T]{Key: []byte(k), TTL: in.ttl}.AppendBinary(nil)
	require.NoError(t, err)
	length := min(uint64(codec.MaxFrame-len(frame)), uint64(^T(0)))
	value := bytes.Repeat([]byte{0x19}, int(length))
	ok, err := in.client.Set(in.ctx, k, value, in.ttl)
	requireOK(t, ok, err)
	b, ok, err := in.client.Get(in.ctx, k)
	requireOK(t, ok, err)
	require.True(t, bytes.Equal(value, b.Value))
	_, err = in.client.Set(in.ctx, k, append(value, 0), in.ttl)
	require.ErrorIs(t, err, codec.ErrTooLarge)
}

func interopBatch[T codec.Value](t *testing.T, in *interop[T]) {
	counter, buffer, none := in.key(t, "counter"), in.key(t, "buffer"), in.key(t, "none")
	var b throttr.Batch[T]
	done := []throttr.Reply[T]{
		b.Insert(counter, 5, in.ttl),
		b.Update(counter, codec.Quota, codec.Increase, 2),
		b.Update(counter, codec.TimeToLive, codec.Patch, 100),
		b.Set(buffer, []byte("hello"), in.ttl),
	}
	query, get, missing := b.Query(counter), b.Get(buffer), b.Query(none)
	done = append(done, b.Purge(counter), b.Purge(buffer))
	refused := b.Purge(counter)
	require.NoError(t, in.client.Do(in.ctx, &b))
	for _, r := range done {
		ok, err := r.OK()
		requireOK(t, ok, err)
	}
	ok, err := refused.OK()
	requireFailure(t, ok, err)
	c, ok, err := query.Counter()
	requireOK(t, ok, err)
	require.Equal(t, T(7), c.Quota)
	require.LessOrEqual(t, c.TTL.Amount, T(100))
	v, ok, err := get.Buffer()
	requireOK(t, ok, err)
	require.Equal(t, "hello", string(v.Value))
	_, ok, err = missing.Counter()
	requireFailure(t, ok, err)
}

// interopLargeBatch sends a batch that takes several round trips.
func interopLargeBatch[T codec.Value](t *testing.T, in *interop[T]) {
	const n = 1200
	k := in.key(t, "counter")
	var b throttr.Batch[T]
	b.Insert(k, 0, in.ttl)
	replies := make([]throttr.CounterReply[T], n)
	for i := range replies {
		b.Update(k, codec.Quota, codec.Increase, 1)
		replies[i] = b.Query(k)
	}
	require.NoError(t, in.client.Do(in.ctx, &b))
	for i, r := range replies {
		c, ok, err := r.Counter()
		requireOK(t, ok, err)
		n := uint64(i + 1)
		require.Equal(t, T(n), c.Quota, "request %d; a byte wraps", i)
	}
}

// interopPipelining has 50 goroutines send 2,000 requests in all, each goroutine with a
// counter of its own and each answer checked, and one counter for everybody.
func interopPipelining[T codec.Value](t *testing.T, in *interop[T]) {
	const goroutines, rounds = 50, 10
	shared := in.key(t, "shared")
	ok, err := in.client.Insert(in.ctx, shared, 0, in.ttl)
	requireOK(t, ok, err)
	var crowd sync.WaitGroup
	for g := range goroutines {
		own := in.key(t, strconv.Itoa(g))
		crowd.Go(func() {
			if ok, err := in.client.Insert(in.ctx, own, T(g), in.ttl); !ok || err != nil {
				t.Errorf("insert: %v %v", ok, err)
			}
			for r := range rounds {
				for _, k := range []string{own, shared} {
					if ok, err := in.client.Update(in.ctx, k, codec.Quota, codec.Increase, 1); !ok || err != nil {
						t.Errorf("update: %v %v", ok, err)
					}
				}
				for range 2 {
					c, ok, err := in.client.Query(in.ctx, own)
					if want := T(g + r + 1); !ok || err != nil || c.Quota != want {
						t.Errorf("query: %d, want %d; %v %v", c.Quota, want, ok, err)
					}
				}
			}
		})
	}
	crowd.Wait()
	n := uint64(goroutines * rounds)
	require.Equal(t, T(n), in.quota(t, shared), "all are counted, modulo the value size")
}

func interopWrongSize[T codec.Value](t *testing.T, in *interop[T]) {
	var err error
	cfg := throttr.Config{Servers: []string{in.addr}}
	if codec.Size[T]() == 2 {
		_, err = throttr.Connect[uint64](in.ctx, cfg)
	} else {
		_, err = throttr.Connect[uint16](in.ctx, cfg)
	}
	require.ErrorIs(t, err, throttr.ErrValueSizeMismatch)
	var size *throttr.ValueSizeError
	require.ErrorAs(t, err, &size)
	require.Equal(t, codec.Size[T](), size.Actual)
	_, ok, err := in.client.Query(in.ctx, in.run+"none") // the server lives
	requireFailure(t, ok, err)
}
