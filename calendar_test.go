package throttr_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

// berlinMonth is a limit for months of Berlin.
var berlinMonth = throttr.Limit{Name: "quota", Max: 1000, Calendar: throttr.Month, Zone: "Europe/Berlin", StartDay: 17}

// The month from 17 March to 17 April has an hour less than its days.
func TestCallsOfACalendarLimitAreOfOneWindow(t *testing.T) {
	store, clock := newMemory(t)
	clock.Advance(time.Date(2018, 3, 16, 23, 0, 0, 0, time.UTC).Sub(clock.Now()))
	l := throttr.NewRateLimit(store, throttr.WithAlgorithm(throttr.TokenBucket))
	end := time.Date(2018, 4, 16, 22, 0, 0, 0, time.UTC)
	for count := uint64(1); ; clock.Advance(24 * time.Hour) {
		for call, decide := range decisions {
			res := decided(t)(decide(t.Context(), l, berlinMonth, 1))
			if !clock.Now().Before(end) {
				require.Equal(t, 30*24*time.Hour, res.ResetAfter.Round(24*time.Hour), "the next month")
				return
			}
			require.True(t, res.Allowed)
			require.Equal(t, count, res.Count, call)
			require.Equal(t, end.Sub(clock.Now()), res.ResetAfter)
			require.True(t, end.Equal(res.ResetAt), "%v", res.ResetAt)
			count++
		}
	}
}

// A caller waits until the window of its turn begins. The length of a day in which clocks change is its own: it has
// 23 hours, also if the clock of the store is ahead.
func TestWaitersInADayOf23HoursWaitForItsEnd(t *testing.T) {
	for _, ahead := range []time.Duration{0, 30 * time.Minute} {
		synctest.Test(t, func(t *testing.T) { waitInADayOf23Hours(t, ahead) })
	}
}

func waitInADayOf23Hours(t *testing.T, ahead time.Duration) {
	time.Sleep(time.Until(time.Date(2000, 3, 25, 22, 0, 0, 0, time.UTC)))
	clock := func() time.Time { return time.Now().Add(ahead) }
	l := throttr.NewRateLimit(inProcess(t, memory.WithClock(clock), memory.WithCleanPeriod(24*time.Hour)))
	limit := throttr.Limit{Max: 1, Calendar: throttr.Day, Zone: "Europe/Berlin"}
	decided(t)(l.Take(t.Context(), "k", limit, 1))
	midnights := []time.Time{time.Date(2000, 3, 25, 23, 0, 0, 0, time.UTC), time.Date(2000, 3, 26, 22, 0, 0, 0, time.UTC)}
	got := make(chan time.Time, 1)
	for i, midnight := range midnights {
		midnight = midnight.Add(-ahead)
		begun := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), midnight.Add(-time.Minute))
		defer cancel()
		_, err := l.Wait(ctx, "k", limit, 1)
		var late *throttr.DeadlineError
		require.ErrorAs(t, err, &late)
		require.Equal(t, begun, time.Now(), "at once")
		require.WithinDuration(t, midnight, late.At, time.Second)
		ctx, cancel = context.WithDeadline(t.Context(), midnight.Add(time.Minute))
		defer cancel()
		if i == 0 {
			go func() {
				decided(t)(l.Wait(ctx, "k", limit, 1))
				got <- time.Now()
			}()
			synctest.Wait()
			continue
		}
		decided(t)(l.Wait(ctx, "k", limit, 1))
		require.WithinDuration(t, midnight, time.Now(), time.Second)
	}
	require.WithinDuration(t, midnights[0].Add(-ahead), <-got, time.Second)
}
