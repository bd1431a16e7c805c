package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Bytes that are no record are an error, or a record that counts something: no call panics.
func TestBytesThatAreNoRecord(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	at := algorithm.At(time.Unix(0, 1_893_456_000_500_000_000))
	for _, kind := range limits.Algorithms {
		by := algorithm.RuleOf(&window.Limit{Max: 10, Scale: time.Second, Algorithm: kind})
		refused := 0
		for range 20_000 {
			var whole algorithm.Record
			by.Take(&whole, at, 3, r.Uint64())
			bytes := whole.AppendBinary(nil)
			for range 1 + r.IntN(4) {
				bytes[r.IntN(len(bytes))] = byte(r.Uint32())
			}
			bytes = bytes[:1+r.IntN(len(bytes))]
			read, err := by.How.ReadBinary(bytes)
			if err != nil {
				refused++
				continue
			}
			by.Peek(&read, at, 9)
			by.Take(&read, at, 2, r.Uint64())
			by.Charge(&read, at, 2, r.Uint64())
			by.GiveBack(&read, at, read.ID, 1)
		}
		require.Greater(t, refused, 1000, kind)
	}
	for bytes, kind := range map[string]window.Algorithm{
		"\x00": window.FixedWindow, "\x02\x01": window.FixedWindow, "\x01": window.FixedWindow,
		"\x02\x07\x00\x05\x01\x09\x00\x03\x00": window.TokenBucket, // its Max is 0, so what it owes is never paid
	} {
		_, err := algorithm.Of(kind).ReadBinary([]byte(bytes))
		require.Error(t, err, "%q", bytes)
	}
}
