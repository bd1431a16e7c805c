package fixedwindow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
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
	for _, scale := range inspectorScales {
		bands, _ := slot.BandsFor(scale, maxValue[T]())
		for _, name := range slotNames(&bands, "k", "") {
			require.Positive(t, Inspect[T](name, 0).Interval, "%s", name)
			other := string(name[:1]) + "x" + string(name[2:]) // no unit
			require.Zero(t, Inspect[T]([]byte(other), 0), other)
		}
	}
	for _, name := range []string{
		"", "jobs", "throttr:sweeper", "wsA:500µs:k", "wsC:1s:k",
	} {
		require.Zero(t, Inspect[T]([]byte(name), 1), name)
	}
}

func TestInspectorDecidesAboutSlots(t *testing.T) {
	forEachSize(t, inspectorOfSlots[uint8], inspectorOfSlots[uint16], inspectorOfSlots[uint32], inspectorOfSlots[uint64])
}

func inspectorOfSlots[T codec.Value](t *testing.T) {
	for _, scale := range inspectorScales {
		bands, ok := slot.BandsFor(scale, maxValue[T]())
		require.True(t, ok)
		interval := sweepInterval(&bands)
		names := slotNames(&bands, "k", "")
		for left, want := range map[uint64]sweep.Decision{
			bands.Top + 1:    {},
			bands.Top:        {Interval: interval},
			bands.Margin:     {Interval: interval},
			bands.Margin - 1: {Interval: interval, Over: true},
			bands.Watch:      {Interval: interval, Over: true},
			bands.Watch - 1:  {Interval: interval, Over: true, Target: string(names[0])},
			0:                {Interval: interval, Over: true, Target: string(names[0])},
		} {
			for _, name := range names {
				got := Inspect[T](name, left)
				require.Equal(t, want, got, "%s with %d", name, left)
			}
		}
	}
}

// The age of the last sweep is known in whole seconds. If intervals were as short, all sweepers of a
// fleet would sweep.
func TestIntervalsOfSweepsAreOverASecond(t *testing.T) {
	for _, size := range []int{1, 2, 4, 8} {
		largest := api.MaxValue(size)
		for scale := time.Millisecond; scale < 200*time.Hour; scale += 1 + scale/100*time.Duration(size) {
			for _, whole := range []time.Duration{scale, scale.Round(time.Millisecond), scale.Round(time.Second), scale.Round(time.Minute), scale.Round(time.Hour)} {
				if bands, ok := slot.BandsFor(whole, largest); ok {
					require.Greater(t, sweepInterval(&bands)*8/10, 1300*time.Millisecond, "%v in %d bytes", whole, size)
				}
			}
		}
	}
}
