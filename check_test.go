package throttr_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

// limits are some that a server of small values can't keep, and some that it can.
var limits = []struct {
	scale time.Duration
	limit uint64
}{
	{time.Minute, 100}, {time.Second, 191}, {time.Second, 192}, {time.Hour, 65471}, {time.Hour, 65472}, {time.Hour, 100_000},
	{90500 * time.Millisecond, 5}, {24*time.Hour + time.Second, 5}, {24 * time.Hour, 5}, {time.Minute, math.MaxUint64},
	{60, 5}, {0, 5}, {-time.Second, 5}, {time.Millisecond, 5},
}

// Check foretells what a hit returns.
func TestCheckRefusesWhatHitsRefuse(t *testing.T) {
	for _, size := range []int{0, 1, 2, 4, 8} {
		synctest.Test(t, func(t *testing.T) {
			b := throttr.Backend(inProcess(t, memory.WithClock(time.Now)))
			if size > 0 {
				srv := testkit.InMemory(t, mockserver.WithValueSize(size))
				opened := openOver(t, testkit.Over(srv, throttr.Config{Parking: throttr.ParkingAlways}))
				defer opened.Close()
				b = opened
			}
			l := throttr.NewRateLimit(b)
			for _, c := range limits {
				_, err := l.Hit(t.Context(), "k", c.scale, c.limit)
				checked := l.Check(throttr.Limit{Max: c.limit, Scale: c.scale})
				refused := errors.Is(err, throttr.ErrScale) || errors.Is(err, throttr.ErrRange)
				require.Equal(t, refused, checked != nil, "%d bytes, %d in %v: %v, but Check: %v", size, c.limit, c.scale, err, checked)
				_, err = b.Check(throttr.Limit{Max: 1, Scale: 60, Algorithm: throttr.FixedWindow})
				require.ErrorIs(t, err, throttr.ErrScale)
			}
		})
	}
}

func TestCheckKnowsTheFallbackToo(t *testing.T) {
	l := throttr.NewRateLimit(inProcess(t), throttr.WithFallback(openURL(t, "throttr://"+mockserver.RunT(t).Addr())))
	require.NoError(t, l.Check(throttr.Limit{Max: 1000, Scale: time.Hour}))
	require.ErrorIs(t, l.Check(throttr.Limit{Max: 100_000, Scale: time.Hour}), throttr.ErrRange)
}
