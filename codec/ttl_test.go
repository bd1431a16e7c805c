package codec_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// ttlText is TTLOf with the text of the TTL and its duration.
func ttlText[T codec.Value](d time.Duration) (string, time.Duration, error) {
	ttl, err := codec.TTLOf[T](d)
	return ttl.String(), ttl.Duration(), err
}

func TestTTLOfChoosesTheFinestExactUnit(t *testing.T) {
	bySize := []func(time.Duration) (string, time.Duration, error){
		ttlText[uint8], ttlText[uint16], ttlText[uint32], ttlText[uint64],
	}
	const longest = time.Duration(math.MaxInt64) // some 292 years
	for _, tt := range []struct {
		d                     time.Duration
		one, two, four, eight string // by value size; "" is an error
	}{
		{1, "1ns", "1ns", "1ns", "1ns"},
		{255, "255ns", "255ns", "255ns", "255ns"},
		{256, "", "256ns", "256ns", "256ns"},
		{65536, "", "", "65536ns", "65536ns"},
		{time.Microsecond, "1µs", "1000ns", "1000ns", "1000ns"},
		{time.Millisecond, "1ms", "1000µs", "1000000ns", "1000000ns"},
		{time.Second, "1s", "1000ms", "1000000000ns", "1000000000ns"},
		{1500 * time.Millisecond, "", "1500ms", "1500000000ns", "1500000000ns"},
		{256 * time.Second, "", "256s", "256000000µs", "256000000000ns"},
		{300 * time.Second, "5m", "300s", "300000000µs", "300000000000ns"},
		{255 * time.Minute, "255m", "15300s", "15300000ms", "15300000000000ns"},
		{256 * time.Minute, "", "15360s", "15360000ms", "15360000000000ns"},
		{255 * time.Hour, "255h", "15300m", "918000000ms", "918000000000000ns"},
		{256 * time.Hour, "", "15360m", "921600000ms", "921600000000000ns"},
		{65535 * time.Hour, "", "65535h", "235926000s", "235926000000000000ns"},
		{65536 * time.Hour, "", "", "235929600s", "235929600000000000ns"},
		{time.Hour + 1, "", "", "", "3600000000001ns"},
		{longest, "", "", "", "9223372036854775807ns"},
		{longest.Truncate(time.Hour), "", "", "153722820m", "9223369200000000000ns"},
	} {
		for i, want := range []string{tt.one, tt.two, tt.four, tt.eight} {
			size := 1 << i
			got, d, err := bySize[i](tt.d)
			if want == "" {
				require.ErrorIs(t, err, codec.ErrTTLRange, "%v in %d bytes is %v", tt.d, size, got)
				continue
			}
			require.NoError(t, err, "%v in %d bytes", tt.d, size)
			require.Equal(t, want, got, "%v in %d bytes", tt.d, size)
			require.Equal(t, tt.d, d, "the TTL has the same duration")
		}
	}
}

func TestTTLOfErrorSaysWhatWouldDo(t *testing.T) {
	_, _, err := ttlText[uint8](65536)
	require.EqualError(t, err, "codec: TTL out of range: 65.536µs is not exact in any unit with a value size of 1, one of 4 would do")
	_, _, err = ttlText[uint16](65536 * time.Hour)
	require.EqualError(t, err, "codec: TTL out of range: 65536h0m0s is not exact in any unit with a value size of 2, one of 4 would do")
	for _, d := range []time.Duration{0, -1, math.MinInt64} {
		_, _, err := ttlText[uint64](d)
		require.ErrorIs(t, err, codec.ErrTTLRange)
		require.ErrorContains(t, err, "not positive")
	}
}

func TestDurationOfATTLStopsAtTheLongest(t *testing.T) {
	for _, tt := range []struct {
		ttl  codec.TTL[uint64]
		want time.Duration
	}{
		{codec.TTL[uint64]{Amount: 0, Unit: codec.Hours}, 0},
		{codec.TTL[uint64]{Amount: math.MaxInt64, Unit: codec.Nanoseconds}, math.MaxInt64},
		{codec.TTL[uint64]{Amount: math.MaxInt64 + 1, Unit: codec.Nanoseconds}, math.MaxInt64},
		{codec.TTL[uint64]{Amount: 9223372036, Unit: codec.Seconds}, 9223372036 * time.Second},
		{codec.TTL[uint64]{Amount: 9223372037, Unit: codec.Seconds}, math.MaxInt64},
		{codec.TTL[uint64]{Amount: math.MaxUint64, Unit: codec.Hours}, math.MaxInt64},
	} {
		require.Equal(t, tt.want, tt.ttl.Duration(), "%v", tt.ttl)
	}
	require.Equal(t, 255*time.Hour, codec.TTL[uint8]{Amount: 255, Unit: codec.Hours}.Duration())
}

func TestUnknownUnitCountsAsSeconds(t *testing.T) {
	for _, u := range []codec.Unit{0, 7, 255} {
		require.False(t, u.Known())
		require.Equal(t, 3*time.Second, codec.TTL[uint8]{Amount: 3, Unit: u}.Duration())
	}
	for u := codec.Nanoseconds; u <= codec.Hours; u++ {
		require.True(t, u.Known())
	}
}
