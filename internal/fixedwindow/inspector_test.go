package fixedwindow

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/internal/valuesize"
)

// inspectorScales are scales that each value size can keep.
var inspectorScales = []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour}

// forEachSize runs a test for each value size.
func forEachSize(t *testing.T, u8, u16, u32, u64 func(t *testing.T)) {
	for size, test := range map[string]func(t *testing.T){"uint8": u8, "uint16": u16, "uint32": u32, "uint64": u64} {
		t.Run(size, test)
	}
}

func TestInspectorKnowsRecordsByTheirNames(t *testing.T) {
	forEachSize(t, inspectorKnows[uint8], inspectorKnows[uint16], inspectorKnows[uint32], inspectorKnows[uint64])
}

func inspectorKnows[T codec.Value](t *testing.T) {
	var r Inspector[T]
	now := time.Unix(1e9, 0)
	for _, scale := range inspectorScales {
		bands, _ := slot.BandsFor(scale, maxValue[T]())
		for _, name := range slotNames(&bands, "k", "") {
			removable, ours := r.Inspect(name, now)
			require.True(t, removable && ours, "%s", name)
			other := string(name[:1]) + "x" + string(name[2:]) // no unit
			_, ours = r.Inspect([]byte(other), now)
			require.False(t, ours, other)
		}
	}
	for _, name := range []string{
		"", "jobs", "throttr:sweeper", "al:1s:k", "al:1s:x:k", "al:1.0s:1:k", "al:500µs:1:k", "al:0s:1:k",
		"al:1s:9223372036854775807:k", "al:1s:-9223372036854775808:k", "al:2562047h47m16s:1:k", "wsA:500µs:k", "wsC:1s:k",
	} {
		removable, ours := r.Inspect([]byte(name), now)
		require.False(t, removable || ours, name)
		require.Equal(t, sweep.Decision{}, r.Decide([]byte(name), sweep.Observation{Left: 1}, now), name)
	}
}

func TestInspectorDecidesAboutSlots(t *testing.T) {
	forEachSize(t, inspectorOfSlots[uint8], inspectorOfSlots[uint16], inspectorOfSlots[uint32], inspectorOfSlots[uint64])
}

func inspectorOfSlots[T codec.Value](t *testing.T) {
	var r Inspector[T]
	for _, scale := range inspectorScales {
		bands, ok := slot.BandsFor(scale, maxValue[T]())
		require.True(t, ok)
		interval := sweepInterval(&bands)
		names := slotNames(&bands, "k", "")
		for left, want := range map[uint64]sweep.Decision{
			bands.Top + 1:    {},
			bands.Top:        {Interval: interval},
			bands.Margin:     {Interval: interval},
			bands.Margin - 1: {Interval: interval, Verdict: sweep.Keep},
			bands.Watch:      {Interval: interval, Verdict: sweep.Keep},
			bands.Watch - 1:  {Interval: interval, Verdict: sweep.Remove, Target: string(names[0])},
			0:                {Interval: interval, Verdict: sweep.Remove, Target: string(names[0])},
		} {
			for _, name := range names {
				got := r.Decide(name, sweep.Observation{Count: 1, Left: left}, time.Unix(1e9, 0))
				require.Equal(t, want, got, "%s with %d", name, left)
			}
		}
	}
}

func TestInspectorDecidesAboutAlignedWindows(t *testing.T) {
	forEachSize(t, inspectorOfAligned[uint8], inspectorOfAligned[uint16], inspectorOfAligned[uint32], inspectorOfAligned[uint64])
}

func inspectorOfAligned[T codec.Value](t *testing.T) {
	var r Inspector[T]
	scales := append([]time.Duration{100 * time.Second}, inspectorScales...)
	for _, scale := range scales {
		tm, ok := timingFor(scale, false, maxValue[T]())
		require.True(t, ok)
		const bucket = 12345
		prefix, suffix := alignedName(tm, "k", "login")
		name := []byte(fmt.Sprint(prefix, bucket, suffix))
		free := tm.end(bucket + 1).Add(min(5*time.Second, tm.margin()/4)) // no client uses the name again
		margin, interval := tm.marginUnits(), tm.sweepInterval()
		decide := func(now time.Time, left uint64) sweep.Decision {
			return r.Decide(name, sweep.Observation{Left: left}, now)
		}
		before := free.Add(-1)
		require.Equal(t, sweep.Decision{}, decide(before, tm.ttl+1), "of somebody else")
		require.Equal(t, sweep.Decision{Interval: interval}, decide(before, tm.ttl))
		require.Equal(t, sweep.Decision{Interval: interval}, decide(before, margin/2))
		require.Equal(t, sweep.Decision{Interval: interval, Verdict: sweep.Prolong, Increase: margin - margin/2 + 1}, decide(before, margin/2-1))
		require.Equal(t, sweep.Decision{Interval: interval, Verdict: sweep.Prolong, Increase: margin}, decide(before, 0))
		require.Equal(t, sweep.Decision{Interval: interval, Verdict: sweep.Prolong, Increase: margin}, decide(tm.end(bucket-3), 0), "another client's clock is ahead")
		for _, left := range []uint64{0, margin, tm.ttl} {
			require.Equal(t, sweep.Decision{Interval: interval, Verdict: sweep.Remove, Target: string(name)}, decide(free, left))
		}
		removable, ours := r.Inspect(name, before)
		require.True(t, ours && !removable)
		removable, ours = r.Inspect(name, free)
		require.True(t, ours && removable)
	}
}

// The age of the last sweep is known in whole seconds. If intervals were as short, all sweepers of a
// fleet would sweep.
func TestIntervalsOfSweepsAreOverASecond(t *testing.T) {
	for _, size := range []int{1, 2, 4, 8} {
		largest := valuesize.Max(size)
		for scale := time.Millisecond; scale < 200*time.Hour; scale += 1 + scale/100*time.Duration(size) {
			for _, whole := range []time.Duration{scale, scale.Round(time.Millisecond), scale.Round(time.Second), scale.Round(time.Minute), scale.Round(time.Hour)} {
				if bands, ok := slot.BandsFor(whole, largest); ok {
					require.Greater(t, sweepInterval(&bands)*8/10, 1300*time.Millisecond, "%v in %d bytes", whole, size)
				}
				if tm, ok := timingFor(whole, false, largest); ok && !tm.needsParking() {
					require.Greater(t, tm.sweepInterval()*8/10, 2*time.Second, "%v in %d bytes, aligned", whole, size)
				}
			}
		}
	}
}
