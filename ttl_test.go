package throttr_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

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
