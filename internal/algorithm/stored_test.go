package algorithm_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// A record that is written and read before each call counts as one that is not.
func TestRecordsInBinaryFormCountAlike(t *testing.T) {
	const scale = time.Second
	for _, kind := range limits.Algorithms {
		a := algorithm.Of(kind)
		r := rand.New(rand.NewPCG(1, uint64(kind)))
		now := int64(1_893_456_000_000_000_000)
		var kept, read algorithm.Record
		var ids []int64
		for i := range uint64(3000) {
			var err error
			read, err = a.ReadBinary(read.AppendBinary(nil))
			require.NoError(t, err)
			now += r.Int64N(int64(scale / 8))
			at := algorithm.Time{Now: now, Read: time.Unix(0, now)}
			by := algorithm.Rule{Scale: scale, Max: 20, Holds: 20}
			n := 1 + r.Uint64N(4)
			switch x := r.IntN(10); {
			case x < 6:
				want := a.Take(&kept, &by, &at, n, i+1)
				require.Equal(t, want, a.Take(&read, &by, &at, n, i+1), "%v: take %d", kind, i)
				if want.Wait == 0 {
					ids = append(ids, want.ID)
				}
			case x < 7:
				require.Equal(t, a.Peek(&kept, &by, &at, n), a.Peek(&read, &by, &at, n), "%v: peek %d", kind, i)
			case len(ids) > 0:
				j := max(0, len(ids)-1-r.IntN(4))
				id := ids[j]
				ids = slices.Delete(ids, j, j+1)
				require.Equal(t, a.GiveBack(&kept, &by, &at, id, 4), a.GiveBack(&read, &by, &at, id, 4), "%v: give back %d", kind, i)
			}
		}
	}
}

// Bytes that are no record are an error, or a record that counts something: no call panics.
func TestBytesThatAreNoRecord(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	by := algorithm.Rule{Scale: time.Second, Max: 10, Holds: 10}
	at := algorithm.Time{Now: 1_893_456_000_500_000_000, Read: time.Unix(0, 1_893_456_000_500_000_000)}
	for _, kind := range limits.Algorithms {
		a := algorithm.Of(kind)
		refused := 0
		for range 20_000 {
			var whole algorithm.Record
			a.Take(&whole, &by, &at, 3, r.Uint64())
			bytes := whole.AppendBinary(nil)
			for range 1 + r.IntN(4) {
				bytes[r.IntN(len(bytes))] = byte(r.Uint32())
			}
			bytes = bytes[:1+r.IntN(len(bytes))]
			read, err := a.ReadBinary(bytes)
			if err != nil {
				refused++
				continue
			}
			a.Peek(&read, &by, &at, 9)
			a.Take(&read, &by, &at, 2, r.Uint64())
			a.Charge(&read, &by, &at, 2, r.Uint64())
			a.GiveBack(&read, &by, &at, read.ID, 1)
		}
		require.Greater(t, refused, 1000, kind)
	}
	for bytes, kind := range map[string]window.Algorithm{
		"\x00": window.FixedWindow, "\x02\x01": window.FixedWindow, "\x01": window.FixedWindow,
		"\x01\x07\x00\x05\x01\x09\x00\x03\x00": window.TokenBucket, // its Max is 0, so what it owes is never paid
	} {
		_, err := algorithm.Of(kind).ReadBinary([]byte(bytes))
		require.Error(t, err, "%q", bytes)
	}
}
