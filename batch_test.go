package throttr_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// home returns the address of the server that has a counter.
func home(servers testkit.Servers, key string) string {
	for _, srv := range servers {
		if _, ok := srv.Counter(key); ok {
			return srv.Addr()
		}
	}
	return ""
}

func TestBatchReachesTheServersOfItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 300
		servers := testkit.Several(t, 3)
		client := testkit.Client[uint16](t, servers.Over(throttr.Config{MaxInFlight: 30}))
		var b throttr.Batch[uint16]
		var inserts []throttr.Reply[uint16]
		var queries []throttr.CounterReply[uint16]
		for i := range keys {
			key := fmt.Sprint("user:", i)
			inserts = append(inserts, b.Insert(key, uint16(i), testkit.Minute))
			queries = append(queries, b.Query(key))
		}
		require.Equal(t, 2*keys, b.Len())
		require.NoError(t, client.Do(t.Context(), &b))
		homes := map[string]int{}
		for i := range keys {
			ok, err := inserts[i].OK()
			require.NoError(t, err)
			require.True(t, ok)
			counter, ok, err := queries[i].Counter()
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, i, counter.Quota)
			homes[home(servers, fmt.Sprint("user:", i))]++
		}
		require.Len(t, homes, 3)
		for i, s := range client.Stats().Servers {
			require.Equal(t, servers[i].Addr(), s.Server)
			require.EqualValues(t, 1+2*homes[s.Server], s.Answered, "the client has made one request itself")
		}
	})
}

func TestBatchThatCannotBeEncodedIsNotSent(t *testing.T) {
	srv, client := testkit.Start[uint16](t, throttr.Config{})
	long := string(bytes.Repeat([]byte{'k'}, 256))
	for name, c := range map[string]struct {
		add func(*throttr.Batch[uint16])
		err error
	}{
		"key":        {func(b *throttr.Batch[uint16]) { b.Query(long) }, codec.ErrTooLarge},
		"value":      {func(b *throttr.Batch[uint16]) { b.Set("k", make([]byte, 8090), testkit.Minute) }, codec.ErrTooLarge},
		"TTL":        {func(b *throttr.Batch[uint16]) { b.Insert("k", 1, codec.TTL[uint16]{}) }, throttr.ErrTTL},
		"TTL of SET": {func(b *throttr.Batch[uint16]) { b.Set("k", nil, codec.TTL[uint16]{Unit: codec.Hours}) }, throttr.ErrTTL},
		"change":     {func(b *throttr.Batch[uint16]) { b.Update("k", codec.Quota, 3, 1) }, throttr.ErrUpdate},
		"attribute":  {func(b *throttr.Batch[uint16]) { b.Update("k", 2, codec.Patch, 1) }, throttr.ErrUpdate},
	} {
		t.Run(name, func(t *testing.T) {
			var b throttr.Batch[uint16]
			good := b.Insert("good", 1, testkit.Minute)
			c.add(&b)
			b.Purge("good")
			for range 2 {
				err := client.Do(t.Context(), &b)
				require.ErrorIs(t, err, c.err)
				require.ErrorContains(t, err, "request 1: ")
				_, err = good.OK()
				require.ErrorIs(t, err, throttr.ErrBatch, "it was not sent")
			}
			b.Reset()
			require.Zero(t, b.Len())
			b.Query("good")
			require.NoError(t, client.Do(t.Context(), &b), "after a Reset")
		})
	}
	require.Equal(t, 1, srv.Requests(codec.OpInsert), "of the probe")
}

func TestBatchUsedOutOfOrder(t *testing.T) {
	srv, client := testkit.Start[uint16](t, throttr.Config{})
	var b throttr.Batch[uint16]
	_, err := throttr.Reply[uint16]{}.OK()
	require.ErrorIs(t, err, throttr.ErrBatch)
	p, q, g := b.Purge("p"), b.Query("k"), b.Get("k")
	_, err = p.OK()
	require.ErrorIs(t, err, throttr.ErrBatch)
	_, _, err = q.Counter()
	require.ErrorIs(t, err, throttr.ErrBatch)
	_, _, err = g.Buffer()
	require.ErrorIs(t, err, throttr.ErrBatch)
	require.NoError(t, client.Do(t.Context(), &b))
	require.ErrorIs(t, client.Do(t.Context(), &b), throttr.ErrBatch)
	_, _, err = q.Counter()
	require.NoError(t, err, "the responses remain")

	late := b.Purge("k")
	_, err = late.OK()
	require.ErrorIs(t, err, throttr.ErrBatch)
	require.ErrorIs(t, client.Do(t.Context(), &b), throttr.ErrBatch)
	_, _, err = q.Counter()
	require.NoError(t, err)
	require.Equal(t, 4+1, srv.Requests(codec.OpPurge), "of the probe and the batch")
}

func TestServerThatIsDownFailsOnlyItsPartOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := testkit.Several(t, 2)
		client := testkit.Client[uint16](t, servers.Over(throttr.Config{}))
		servers[0].Disconnect()
		servers[0].Refuse(true)
		synctest.Wait()
		var b throttr.Batch[uint16]
		responses := map[string]throttr.Reply[uint16]{}
		for i := range 50 {
			key := fmt.Sprint("user:", i)
			responses[key] = b.Insert(key, 1, testkit.Minute)
		}
		err := client.Do(t.Context(), &b)
		require.ErrorIs(t, err, throttr.ErrConnect)
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.False(t, testkit.SafeToRetry(err), "the other server has executed its part")
		var failed *throttr.RequestError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, servers[0].Addr(), failed.Server)
		failures := 0
		for key, r := range responses {
			ok, err := r.OK()
			if home(servers, key) == servers[1].Addr() {
				require.NoError(t, err)
				require.True(t, ok)
				continue
			}
			failures++
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.True(t, testkit.SafeToRetry(err), "this part was not sent")
		}
		require.Greater(t, failures, 10)
		require.Less(t, failures, 40)
	})
}

func TestRestOfABatchIsNotSentAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, client := testkit.Start[uint16](t, throttr.Config{MaxConns: 1, MaxInFlight: 10})
		srv.Inject(mockserver.Fault{Op: codec.OpInsert, Skip: 15, Disconnect: true, Times: 1})
		var b throttr.Batch[uint16]
		var responses []throttr.Reply[uint16]
		for i := range 40 {
			responses = append(responses, b.Insert(fmt.Sprint(i), 1, testkit.Minute))
		}
		err := client.Do(t.Context(), &b)
		require.ErrorIs(t, err, throttr.ErrConnLost)
		require.False(t, testkit.SafeToRetry(err))
		for i, r := range responses {
			ok, err := r.OK()
			switch {
			case i < 10:
				require.NoError(t, err)
				require.True(t, ok)
			case i < 20: // in flight when the connection was lost
				require.ErrorIs(t, err, throttr.ErrConnLost)
				require.False(t, testkit.SafeToRetry(err))
			default:
				require.ErrorIs(t, err, throttr.ErrConnLost)
				require.True(t, testkit.SafeToRetry(err))
				_, ok := srv.Counter(fmt.Sprint(i))
				require.False(t, ok)
			}
		}
	})
}

// The mock server reports a violation for each TTL that would lock up a real server (H13).

var units = []codec.Unit{codec.Nanoseconds, codec.Microseconds, codec.Milliseconds, codec.Seconds, codec.Minutes, codec.Hours}

func TestInvalidTTLIsRejected(t *testing.T) {
	testkit.ForEachSize(t, testInvalidTTL[uint8], testInvalidTTL[uint16], testInvalidTTL[uint32], testInvalidTTL[uint64])
}

func testInvalidTTL[T codec.Value](t *testing.T) {
	srv, client := testkit.Start[T](t, throttr.Config{}, mockserver.WithVirtualClock())
	for _, unit := range append(units, 0, 7, 255) {
		for _, amount := range []T{0, 1, ^T(0) / 2, ^T(0) - 1, ^T(0)} {
			ttl := codec.TTL[T]{Amount: amount, Unit: unit}
			fits := amount > 0 && unit.Known() && uint64(amount) <= uint64(1<<63-1)/uint64(unit.Duration())
			key := fmt.Sprint(unit, amount)
			var b throttr.Batch[T]
			insert, set := b.Insert("bi"+key, 1, ttl), b.Set("bs"+key, nil, ttl)
			batchErr := client.Do(t.Context(), &b)
			ok, err := client.Insert(t.Context(), "i"+key, 1, ttl)
			stored, setErr := client.Set(t.Context(), "s"+key, nil, ttl)
			if !fits {
				require.ErrorIs(t, err, throttr.ErrTTL, ttl)
				require.ErrorIs(t, setErr, throttr.ErrTTL, ttl)
				require.ErrorIs(t, batchErr, throttr.ErrTTL, ttl)
				continue
			}
			require.NoError(t, err, ttl)
			require.NoError(t, setErr)
			require.NoError(t, batchErr)
			inserted, _ := insert.OK()
			batched, _ := set.OK()
			require.True(t, ok && stored && inserted && batched, ttl)
			// A nanosecond is over before the next request.
			if ttl.Duration() > time.Microsecond {
				_, ok = srv.Counter("i" + key)
				require.True(t, ok, ttl)
			}
		}
	}
}

// What is left of a record is known to an Update, which can change it, and not to a batch, which can only replace it.
func TestTTLChangesAreBounded(t *testing.T) {
	testkit.ForEachSize(t, testTTLChanges[uint8], testTTLChanges[uint16], testTTLChanges[uint32], testTTLChanges[uint64])
}

func testTTLChanges[T codec.Value](t *testing.T) {
	srv, client := testkit.Start[T](t, throttr.Config{}, mockserver.WithVirtualClock())
	amounts := []T{0, 1, 99, 100, 101, 150, ^T(0) / 2, ^T(0) - 101, ^T(0) - 99, ^T(0) - 1, ^T(0)}
	for _, unit := range units[2:] { // finer ones end too soon
		for _, change := range []codec.Change{codec.Patch, codec.Increase, codec.Decrease} {
			for _, amount := range amounts {
				key := fmt.Sprint(unit, change, amount)
				ok, err := client.Insert(t.Context(), key, 1, codec.TTL[T]{Amount: 100, Unit: unit})
				require.NoError(t, err)
				require.True(t, ok)
				ok, err = client.Update(t.Context(), key, codec.TimeToLive, change, amount)
				left, alive := srv.TTL(key)
				require.True(t, alive, "%s: %v %v", key, ok, err)
				if err != nil {
					require.ErrorIs(t, err, throttr.ErrTTL)
					require.False(t, ok)
					require.InDelta(t, 100*unit.Duration(), left, 10, "it has not changed")
				} else {
					require.True(t, ok)
					c, _, err := client.Query(t.Context(), key)
					require.NoError(t, err)
					require.Equal(t, (left - 1).Truncate(unit.Duration()), c.TTL.Duration(), "%s: a QUERY can tell what remains", key)
				}
				var b throttr.Batch[T]
				update := b.Update(key, codec.TimeToLive, change, amount)
				err = client.Do(t.Context(), &b)
				if change != codec.Patch || amount == 0 || uint64(amount) > 2_562_047 { // hours
					require.ErrorIs(t, err, throttr.ErrTTL, key)
					continue
				}
				require.NoError(t, err, key)
				ok, err = update.OK()
				require.NoError(t, err)
				require.True(t, ok)
				left, _ = srv.TTL(key)
				require.InDelta(t, time.Duration(amount)*unit.Duration(), left, 10)
			}
		}
	}
	ok, err := client.Update(t.Context(), "none", codec.TimeToLive, codec.Increase, 1)
	require.NoError(t, err)
	require.False(t, ok)
}
