package fixedwindow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/window"
)

// requireTTL fails the test if the TTL is one that a server does not hold (H13).
func requireTTL(t *testing.T, ttl codec.TTL[uint64], what ...any) {
	t.Helper()
	require.NotZero(t, ttl.Amount, what...)
	require.LessOrEqual(t, ttl.Amount, uint64(maxTTL/ttl.Unit.Duration()), what...)
}

const year = 365 * 24 * time.Hour

func TestTimingPerValueSize(t *testing.T) {
	type want struct {
		unit         codec.Unit
		span, margin uint64
	}
	const ns, us, ms, s, m, h = codec.Nanoseconds, codec.Microseconds, codec.Milliseconds, codec.Seconds, codec.Minutes, codec.Hours
	none := want{}
	for _, c := range []struct {
		scale time.Duration
		want  [4]want // for 1, 2, 4 and 8 bytes
	}{
		{1, [4]want{{ns, 1, 254}, {ns, 1, 65534}, {ns, 1, math.MaxUint32 - 1}, {ns, 1, 30e9}}},
		{254, [4]want{{ns, 254, 1}, {ns, 254, 65281}, {ns, 254, math.MaxUint32 - 254}, {ns, 254, 30e9}}},
		{255, [4]want{none, {ns, 255, 65280}, {ns, 255, math.MaxUint32 - 255}, {ns, 255, 30e9}}},
		{256, [4]want{none, {ns, 256, 65279}, {ns, 256, math.MaxUint32 - 256}, {ns, 256, 30e9}}},
		{time.Millisecond, [4]want{{ms, 1, 254}, {ms, 1, 30_000}, {us, 1000, 30e6}, {ns, 1e6, 30e9}}},
		{100 * time.Millisecond, [4]want{{ms, 100, 155}, {ms, 100, 30_000}, {us, 100_000, 30e6}, {ns, 100e6, 30e9}}},
		{206 * time.Millisecond, [4]want{{ms, 206, 49}, {ms, 206, 30_000}, {us, 206_000, 30e6}, {ns, 206e6, 30e9}}},
		{15_536 * time.Microsecond, [4]want{none, {us, 15_536, 49_999}, {us, 15_536, 30e6}, {ns, 15_536e3, 30e9}}},
		{65_486 * time.Millisecond, [4]want{none, {ms, 65_486, 49}, {us, 65_486e3, 30e6}, {ns, 65_486e6, 30e9}}},
		{254 * time.Millisecond, [4]want{{ms, 254, 1}, {ms, 254, 30_000}, {us, 254_000, 30e6}, {ns, 254e6, 30e9}}},
		{time.Second, [4]want{{s, 1, 30}, {ms, 1000, 30_000}, {us, 1e6, 30e6}, {ns, 1e9, 30e9}}},
		{1500 * time.Millisecond, [4]want{none, {ms, 1500, 30_000}, {us, 1.5e6, 30e6}, {ns, 1.5e9, 30e9}}},
		{10 * time.Second, [4]want{{s, 10, 30}, {ms, 10_000, 30_000}, {us, 10e6, 30e6}, {ns, 10e9, 30e9}}},
		{time.Minute, [4]want{{s, 60, 30}, {ms, 60_000, 5535}, {us, 60e6, 30e6}, {ns, 60e9, 30e9}}},
		{61 * time.Second, [4]want{{s, 61, 30}, {s, 61, 30}, {us, 61e6, 30e6}, {ns, 61e9, 30e9}}},
		{254 * time.Second, [4]want{{s, 254, 1}, {s, 254, 30}, {us, 254e6, 30e6}, {ns, 254e9, 30e9}}},
		{255 * time.Second, [4]want{none, {s, 255, 30}, {us, 255e6, 30e6}, {ns, 255e9, 30e9}}},
		{time.Hour, [4]want{{m, 60, 1}, {s, 3600, 30}, {us, 3600e6, 30e6}, {ns, 3600e9, 30e9}}},
		{24 * time.Hour, [4]want{{h, 24, 1}, {m, 1440, 1}, {ms, 86400e3, 30e3}, {ns, 86400e9, 30e9}}},
		{254 * time.Hour, [4]want{{h, 254, 1}, {m, 254 * 60, 1}, {ms, 254 * 3600e3, 30e3}, {ns, 254 * 3600e9, 30e9}}},
		{255 * time.Hour, [4]want{none, {m, 255 * 60, 1}, {ms, 255 * 3600e3, 30e3}, {ns, 255 * 3600e9, 30e9}}},
		{290 * year, [4]want{none, none, {m, 290 * 365 * 24 * 60, 1}, {ns, uint64(290 * year), 30e9}}},
		{math.MaxInt64, [4]want{}},
		{math.MaxInt64 - 1, [4]want{3: {ns, math.MaxInt64 - 1, 1}}},
		{0, [4]want{}},
		{-time.Second, [4]want{}},
		{math.MinInt64, [4]want{}},
	} {
		for i, w := range c.want {
			size := 1 << i
			got, ok := timingOf(c.scale, window.MaxValue(size))
			require.Equal(t, w != none, ok, "%v in %d bytes: %+v", c.scale, size, got)
			if ok {
				require.Equal(t, timing{scale: c.scale, unit: w.unit, span: w.span, margin: w.margin}, got, "%v in %d bytes", c.scale, size)
			}
		}
	}
}

func TestTimingIsExactAndFits(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 50_000 {
		unit := codec.Unit(1 + r.IntN(6)).Duration()
		scale := time.Duration(r.Int64()) / unit >> r.IntN(60) * unit
		for size := 1; size <= 8; size *= 2 {
			largest := window.MaxValue(size)
			tm, ok := timingOf(scale, largest)
			what := fmt.Sprintf("seed %d: %v in %d bytes: %+v", seed, scale, size, tm)
			if !ok {
				continue
			}
			require.Equal(t, scale, tm.duration(tm.span), what)
			require.GreaterOrEqual(t, tm.margin, uint64(1), what)
			require.LessOrEqual(t, tm.margin, largest-tm.span, what)
			requireTTL(t, codec.TTL[uint64]{Amount: tm.span + tm.margin, Unit: tm.unit}, what)
			require.Greater(t, tm.duration(tm.span+tm.margin), scale, "overflow: "+what)
			require.GreaterOrEqual(t, tm.grace(), time.Duration(0), what)
			require.Less(t, tm.grace(), tm.duration(tm.margin), what)
			require.LessOrEqual(t, tm.grace(), scale, what)
			require.Positive(t, tm.denialMemory(), what)
		}
	}
}

func TestAlignedTimingHoldsTwiceTheScale(t *testing.T) {
	for _, c := range []struct {
		scale   time.Duration
		largest uint64
		ok      bool
	}{
		{127, 255, true},
		{128, 255, false},
		{127 * time.Second, 255, true},
		{1500 * time.Millisecond, 255, true}, // 3 s
		{1250 * time.Millisecond, 255, false},
		{127*time.Second + 500*time.Millisecond, 255, false},
		{127 * time.Hour, 255, true},
		{128 * time.Hour, 255, false},
		{maxTTL / 2, math.MaxUint64, true},
		{maxTTL/2 + 1, math.MaxUint64, false},
		{math.MaxInt64, math.MaxUint64, false},
		{0, math.MaxUint64, false},
		{-1, math.MaxUint64, false},
		{math.MinInt64/2 - 1, math.MaxUint64, false}, // twice that wraps around
		{math.MinInt64, math.MaxUint64, false},
	} {
		got, ok := timingFor(window.Aligned, c.scale, c.largest)
		require.Equal(t, c.ok, ok, "%v up to %d", c.scale, c.largest)
		if !ok {
			continue
		}
		require.True(t, got.aligned)
		require.Equal(t, c.scale, got.scale)
		require.Equal(t, 2*c.scale, got.duration(got.span))
		requireTTL(t, codec.TTL[uint64]{Amount: got.span + got.margin, Unit: got.unit})
		for _, now := range []int64{0, 1, -1, 1e18, -1e18, int64(c.scale), -int64(c.scale)} {
			at := time.Unix(0, now)
			b := got.bucket(at)
			require.Equal(t, window.Aligned.Start(at, c.scale).Add(c.scale).UnixNano(), got.bucketEnd(b).UnixNano(), "%v at %d ns", c.scale, now)
			// Opened at any time in its bucket, a record is removed before it expires.
			removed := got.over(b, at).Add(got.grace())
			expires := window.Aligned.Start(at, c.scale).Add(got.duration(got.span)).Add(got.duration(got.margin))
			require.True(t, removed.Before(expires), "%v at %d ns", c.scale, now)
		}
	}
}

func TestAValueSizeThatWouldDoDoes(t *testing.T) {
	for _, scale := range []time.Duration{255, 256, 65535, time.Millisecond + 1, 1500 * time.Millisecond, 255 * time.Second, 290 * year} {
		for size := 1; size <= 8; size *= 2 {
			if _, ok := timingOf(scale, window.MaxValue(size)); ok {
				continue
			}
			var re *window.RangeError
			require.ErrorAs(t, scaleError(window.PerKey, scale, size), &re)
			require.Greater(t, re.Needs, size)
			_, ok := timingOf(scale, window.MaxValue(re.Needs))
			require.True(t, ok, "%v in %d bytes", scale, re.Needs)
			_, ok = timingOf(scale, window.MaxValue(re.Needs/2))
			require.False(t, ok, "%v: %d bytes would do", scale, re.Needs/2)
		}
	}
}

func TestRangeErrorsNameFieldBoundAndSize(t *testing.T) {
	for want, err := range map[string]error{
		"throttr: scale 1.5s is out of range: 1-byte values hold whole numbers of a unit (1 ns to 1 h) up to 254; " +
			"2-byte values (uint16) would do": scaleError(window.PerKey, 1500*time.Millisecond, 1),
		"throttr: scale 2m7.5s is out of range: 1-byte values hold whole numbers of half a unit (1 ns to 1 h) up to 254; " +
			"2-byte values (uint16) would do": scaleError(window.Aligned, 127*time.Second+500*time.Millisecond, 1),
		"throttr: scale 1281024h0m0s is out of range: 8-byte values hold whole numbers of half a unit (1 ns to 1 h) up to 18446744073709551614; " +
			"no value size would do": scaleError(window.Aligned, 1281024*time.Hour, 8),
		"throttr: scale 2562047h47m16.854775807s is out of range: 8-byte values hold whole numbers of a unit (1 ns to 1 h) up to 18446744073709551614; " +
			"no value size would do": scaleError(window.PerKey, math.MaxInt64, 8),
		"throttr: limit 192 is out of range: 1-byte values hold at most 191, as 64 are kept free for clients that add at once; " +
			"2-byte values (uint16) would do": checkCount("limit", 192, 1),
		"throttr: count 18446744073709551615 is out of range: 4-byte values hold at most 4294967231, as 64 are kept free for clients that add at once; " +
			"no value size would do": checkCount("count", math.MaxUint64, 4),
		"throttr: increment 93 is out of range: 1-byte values hold at most 92 with a limit of 100; " +
			"2-byte values (uint16) would do": checkIncrement(100, 93, 1),
		"throttr: increment 18446744073709551552 is out of range: 8-byte values hold at most 18446744073709551551 with a limit of 1; " +
			"no value size would do": checkIncrement(1, math.MaxUint64-63, 8),
		"throttr: increment 100 is out of range: 1-byte values hold counts up to 191, and it is 150 already; " +
			"2-byte values (uint16) would do": overflowError(coalesce.Hit{Limit: 191, Increment: 100, Must: true}, 150, 1),
	} {
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, window.ErrRange)
	}
	for _, size := range []int{1, 2, 4, 8} {
		most := window.MaxValue(size) - headroom
		require.NoError(t, checkCount("limit", most, size))
		require.Error(t, checkCount("limit", most+1, size))
		require.NoError(t, checkIncrement(most, 1, size), "a hit at the largest limit")
		require.Error(t, checkIncrement(most, 2, size))
		require.NoError(t, checkIncrement(0, most+1, size))
		require.Error(t, checkIncrement(0, most+2, size))
	}
}

func TestBucketsAreFloored(t *testing.T) {
	for _, c := range []struct {
		ns   int64
		want int64
	}{{0, 0}, {9, 0}, {10, 1}, {-1, -1}, {-10, -1}, {-11, -2}} {
		require.Equal(t, c.want, timing{scale: 10}.bucket(time.Unix(0, c.ns)), "%d ns", c.ns)
	}
}

func TestSixtyFourSharesDoNotWrap(t *testing.T) {
	for _, size := range []int{1, 2, 4, 8} {
		largest := window.MaxValue(size)
		for _, limit := range []uint64{0, 1, 50, 127, 128, 190, largest / 2, largest - headroom - 1, largest - headroom} {
			s := share(largest, limit)
			require.GreaterOrEqual(t, s, uint64(1))
			require.LessOrEqual(t, s, (largest-limit)/headroom, "size %d, limit %d", size, limit)
		}
	}
}

func TestABatchAddsNoMoreThanAShare(t *testing.T) {
	const maxValue = math.MaxUint64
	share := share(maxValue, 0)
	for _, c := range []struct {
		name  string
		batch coalesce.Batch
		next  uint64
		fits  bool
	}{
		{"a first hit of any size", coalesce.Batch{}, maxValue - headroom, true},
		{"up to the share", coalesce.Batch{Hits: 1, Sum: share - 1}, 1, true},
		{"beyond the share", coalesce.Batch{Hits: 1, Sum: share}, 1, false},
		{"nothing after more than a share", coalesce.Batch{Hits: 1, Sum: share + 1}, 0, false},
		{"a sum that wraps", coalesce.Batch{Hits: 1, Sum: 1 << 63}, 1 << 63, false},
		{"a sum that wraps to a little", coalesce.Batch{Hits: 1, Sum: 1 << 63}, 1<<63 + 1, false},
	} {
		require.Equal(t, c.fits, fits(maxValue, c.batch, coalesce.Hit{Increment: c.next}), c.name)
	}
	b := coalesce.Batch{Hits: 1, Sum: 1, Limit: 10}
	require.False(t, fits(255, b, coalesce.Hit{Increment: 1, Limit: 191}), "the highest limit decides")
}
