package fixedwindow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// requireTTL fails the test if the TTL is one that a server does not hold (H13).
func requireTTL(t *testing.T, ttl codec.TTL[uint64], what ...any) {
	t.Helper()
	require.NotZero(t, ttl.Amount, what...)
	require.LessOrEqual(t, ttl.Amount, uint64(maxTTL/ttl.Unit.Duration()), what...)
}

const year = 365 * 24 * time.Hour

//evidence:limits Units and margins are those of docs/rate-limiting.md
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
		{1, [4]want{{ns, 1, 254}, {ns, 1, 65534}, {ns, 1, math.MaxUint32 - 1}, {ns, 1, 600e9}}},
		{254, [4]want{{ns, 254, 1}, {ns, 254, 65281}, {ns, 254, math.MaxUint32 - 254}, {ns, 254, 600e9}}},
		{255, [4]want{none, {ns, 255, 65280}, {ns, 255, math.MaxUint32 - 255}, {ns, 255, 600e9}}},
		{256, [4]want{none, {ns, 256, 65279}, {ns, 256, math.MaxUint32 - 256}, {ns, 256, 600e9}}},
		{time.Millisecond, [4]want{{ms, 1, 254}, {ms, 1, 65534}, {us, 1000, 600e6}, {ns, 1e6, 600e9}}},
		{100 * time.Millisecond, [4]want{{ms, 100, 155}, {ms, 100, 65435}, {us, 100_000, 600e6}, {ns, 100e6, 600e9}}},
		{206 * time.Millisecond, [4]want{{ms, 206, 49}, {ms, 206, 65329}, {us, 206_000, 600e6}, {ns, 206e6, 600e9}}},
		{15_536 * time.Microsecond, [4]want{none, {us, 15_536, 49_999}, {us, 15_536, 600e6}, {ns, 15_536e3, 600e9}}},
		{65_486 * time.Millisecond, [4]want{none, {ms, 65_486, 49}, {us, 65_486e3, 600e6}, {ns, 65_486e6, 600e9}}},
		{254 * time.Millisecond, [4]want{{ms, 254, 1}, {ms, 254, 65281}, {us, 254_000, 600e6}, {ns, 254e6, 600e9}}},
		{time.Second, [4]want{{s, 1, 254}, {ms, 1000, 64535}, {us, 1e6, 600e6}, {ns, 1e9, 600e9}}},
		{1500 * time.Millisecond, [4]want{none, {ms, 1500, 64035}, {us, 1.5e6, 600e6}, {ns, 1.5e9, 600e9}}},
		{5535 * time.Millisecond, [4]want{none, {ms, 5535, 60_000}, {us, 5535e3, 600e6}, {ns, 5535e6, 600e9}}},
		{6 * time.Second, [4]want{{s, 6, 249}, {s, 6, 600}, {us, 6e6, 600e6}, {ns, 6e9, 600e9}}},
		{10 * time.Second, [4]want{{s, 10, 245}, {s, 10, 600}, {us, 10e6, 600e6}, {ns, 10e9, 600e9}}},
		{time.Minute, [4]want{{s, 60, 195}, {s, 60, 600}, {us, 60e6, 600e6}, {ns, 60e9, 600e9}}},
		{61 * time.Second, [4]want{{s, 61, 194}, {s, 61, 600}, {us, 61e6, 600e6}, {ns, 61e9, 600e9}}},
		{200 * time.Second, [4]want{{s, 200, 55}, {s, 200, 600}, {us, 200e6, 600e6}, {ns, 200e9, 600e9}}},
		{4 * time.Minute, [4]want{{m, 4, 10}, {s, 240, 600}, {us, 240e6, 600e6}, {ns, 240e9, 600e9}}},
		{254 * time.Second, [4]want{{s, 254, 1}, {s, 254, 600}, {us, 254e6, 600e6}, {ns, 254e9, 600e9}}},
		{255 * time.Second, [4]want{none, {s, 255, 600}, {us, 255e6, 600e6}, {ns, 255e9, 600e9}}},
		{time.Hour, [4]want{{m, 60, 10}, {s, 3600, 600}, {us, 3600e6, 600e6}, {ns, 3600e9, 600e9}}},
		{24 * time.Hour, [4]want{{h, 24, 1}, {m, 1440, 10}, {ms, 86400e3, 600e3}, {ns, 86400e9, 600e9}}},
		{254 * time.Hour, [4]want{{h, 254, 1}, {m, 254 * 60, 10}, {ms, 254 * 3600e3, 600e3}, {ns, 254 * 3600e9, 600e9}}},
		{255 * time.Hour, [4]want{none, {m, 255 * 60, 10}, {ms, 255 * 3600e3, 600e3}, {ns, 255 * 3600e9, 600e9}}},
		{290 * year, [4]want{none, none, {m, 290 * 365 * 24 * 60, 10}, {ns, uint64(290 * year), 600e9}}},
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

func TestShortMarginsNeedAParkedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			scale time.Duration
			ok    bool
		}{
			{time.Millisecond, false}, {205 * time.Millisecond, false}, {254 * time.Millisecond, false},
			{time.Second, true}, {254 * time.Second, true}, {time.Hour, true},
		} {
			o := options[uint8](t, inMemory(t, mockserver.WithValueSize(1)))
			b := start(t, o)
			_, _, err := b.Hit(t.Context(), "k", c.scale, 5, 1)
			if c.ok {
				require.NoError(t, err, "%v", c.scale)
				continue
			}
			var tooShort *window.RangeError
			require.ErrorAs(t, err, &tooShort, "%v", c.scale)
			require.Equal(t, 2, tooShort.Needs)
			require.ErrorContains(t, err, "parked server")
			o.Servers[0].(*link[uint8]).parked = true
			w, _, err := b.Hit(t.Context(), "k", c.scale, 5, 1)
			require.NoError(t, err, "%v", c.scale)
			require.EqualValues(t, 1, w.Count)
		}
	})
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

func TestBucketsOfNegativeTimesAreFloored(t *testing.T) {
	for _, c := range []struct {
		ns   int64
		want int64
	}{{0, 0}, {9, 0}, {10, 1}, {-1, -1}, {-10, -1}, {-11, -2}} {
		require.Equal(t, c.want, timing{scale: 10}.bucket(time.Unix(0, c.ns)), "%d ns", c.ns)
	}
}
