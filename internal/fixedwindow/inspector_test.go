package fixedwindow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
)

func TestInspectorDecidesAboutSlots(t *testing.T) {
	const size = 1
	r := NewRemover(nil, conn.NewCalls(conn.SizeOf(size)), 512)
	for _, scale := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour} {
		bands, ok := slot.BandsFor(scale, api.MaxValue(size))
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
				require.Equal(t, want, r.Inspect(name, left), "%s with %d", name, left)
			}
		}
		name := names[0]
		for _, other := range []string{string(name[:1]) + "x" + string(name[2:]), "jobs", "throttr:sweeper", "wsA:500µs:k"} {
			require.Zero(t, r.Inspect([]byte(other), 0), other)
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
