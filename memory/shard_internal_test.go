package memory

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

func TestShardsDoNotShareACacheLine(t *testing.T) {
	require.Zero(t, reflect.TypeFor[shard]().Size()%64)
}

func TestKeysAreSpreadOverTheShards(t *testing.T) {
	b := New(WithMaxKeys(1 << 20))
	defer b.Close()
	require.Len(t, b.shards, 256)
	n := map[*shard]int{}
	for i := range 256 * 256 {
		s, _ := locate(b, string([]byte{byte(i), byte(i >> 8)}), LimitOf(window.FixedWindow, time.Minute, 10))
		n[s]++
	}
	for i := range b.shards {
		require.InDelta(t, 256, n[&b.shards[i]], 128)
	}
	other := New(WithMaxKeys(1 << 20))
	defer other.Close()
	same := 0
	for i := range 256 {
		s, _ := locate(b, string(rune(i)), LimitOf(window.FixedWindow, time.Minute, 10))
		o, _ := locate(other, string(rune(i)), LimitOf(window.FixedWindow, time.Minute, 10))
		for j := range b.shards {
			if s == &b.shards[j] && o == &other.shards[j] {
				same++
			}
		}
	}
	require.Less(t, same, 16, "the hash of a key can't be predicted")
}

func TestMinusStaysInBounds(t *testing.T) {
	for _, test := range []struct {
		a, b int64
		want time.Duration
	}{
		{5, 3, 2}, {3, 5, -2}, {0, 0, 0}, {math.MinInt64, math.MinInt64, 0}, {math.MaxInt64, math.MaxInt64, 0},
		{math.MaxInt64, -1, math.MaxInt64}, {math.MaxInt64, math.MinInt64, math.MaxInt64}, {0, math.MinInt64, math.MaxInt64},
		{-2, math.MaxInt64, math.MinInt64}, {math.MinInt64, 1, math.MinInt64}, {-1, math.MaxInt64, math.MinInt64},
	} {
		require.Equal(t, test.want, minus(test.a, test.b), "%d - %d", test.a, test.b)
	}
}
