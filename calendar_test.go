package throttr_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
)

// berlinMonth is a limit for months of Berlin.
var berlinMonth = throttr.Limit{Name: "quota", Max: 10, Calendar: throttr.Month, Zone: "Europe/Berlin", StartDay: 17}

// at returns a limiter in memory whose clock shows an instant, and the clock.
func at(t *testing.T, instant string, opts ...throttr.Option) (*throttr.RateLimit, *memory.Backend, backendtest.Clock) {
	clock := backendtest.NewClock()
	now, err := time.Parse(time.RFC3339, instant)
	require.NoError(t, err)
	clock.Advance(now.Sub(clock.Now()))
	store := memory.New(memory.WithClock(clock.Now))
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return throttr.NewRateLimit(store, opts...), store, clock
}

// The month from 17 March to 17 April has an hour less than its days.
func TestEveryCallOfACalendarLimitIsOfOneWindow(t *testing.T) {
	l, _, clock := at(t, "2018-03-16T23:00:00Z", throttr.WithAlgorithm(throttr.TokenBucket))
	end := time.Date(2018, 4, 16, 22, 0, 0, 0, time.UTC)
	ctx, count := t.Context(), uint64(0)
	counted := func(n uint64, res throttr.Result, err error) {
		t.Helper()
		count += n
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.Equal(t, count, res.Count)
		require.Equal(t, berlinMonth.Max-count, res.Remaining)
		require.Equal(t, end.Sub(clock.Now()), res.ResetAfter)
		require.True(t, end.Equal(res.ResetAt), "%v", res.ResetAt)
	}
	require.NoError(t, l.Check(berlinMonth))
	res, err := l.HitN(ctx, "k", berlinMonth, 2)
	counted(2, res, err)
	require.Equal(t, 31*24*time.Hour-time.Hour, res.ResetAfter)
	clock.Advance(10*24*time.Hour + time.Minute)
	res, err = l.Take(ctx, "k", berlinMonth, 1)
	counted(1, res, err)
	res, err = l.Charge(ctx, "k", berlinMonth, 1)
	counted(1, res, err)
	res, err = l.Wait(ctx, "k", berlinMonth, 1)
	counted(1, res, err)
	second := throttr.Limit{Name: "burst", Max: 5, Scale: time.Second}
	ok, results, err := l.TakeAll(ctx, second.For("k", 1), berlinMonth.For("k", 1))
	require.True(t, ok)
	counted(1, results[1], err)
	rv, ok, err := l.Reserve(ctx, berlinMonth.For("k", 4))
	require.True(t, ok)
	counted(4, rv.Results()[0], err)
	for _, denied := range []func() (throttr.Result, error){
		func() (throttr.Result, error) { return l.Take(ctx, "k", berlinMonth, 1) },
		func() (throttr.Result, error) { return l.Peek(ctx, "k", berlinMonth, 1) },
		func() (throttr.Result, error) {
			_, results, err := l.TakeAll(ctx, second.For("k", 1), berlinMonth.For("k", 1))
			return results[1], err
		},
	} {
		res, err := denied()
		require.NoError(t, err)
		require.False(t, res.Allowed)
		require.Equal(t, end.Sub(clock.Now()), res.RetryAfter)
		require.True(t, end.Equal(res.ResetAt))
	}
	rv.Commit(ctx, 1)
	res, err = l.Peek(ctx, "k", berlinMonth, 0)
	count -= 3
	counted(0, res, err)

	require.NoError(t, l.Forget(ctx, "k", berlinMonth))
	res, err = l.Peek(ctx, "k", berlinMonth, 1)
	require.NoError(t, err)
	require.Zero(t, res.Count)
	require.Zero(t, res.ResetAt)
	clock.Advance(end.Sub(clock.Now()))
	res, err = l.Take(ctx, "k", berlinMonth, 1)
	require.NoError(t, err)
	require.Equal(t, 30*24*time.Hour, res.ResetAfter, "the next month")
}

func TestTheTwoWaysToWriteUTCAndTheFirstDayAreOneCount(t *testing.T) {
	l, _, _ := at(t, "2018-03-16T23:00:00Z")
	for i, limit := range []throttr.Limit{
		{Max: 10, Calendar: throttr.Month}, {Max: 10, Calendar: throttr.Month, Zone: "UTC", StartDay: 1},
		{Max: 10, Calendar: throttr.Month, StartDay: 1, Algorithm: throttr.CalendarWindow}, {Max: 10, Calendar: throttr.Month, Zone: "UTC"},
	} {
		res, err := l.Take(t.Context(), "k", limit, 1)
		require.NoError(t, err)
		require.Equal(t, uint64(i+1), res.Count, "%v", limit)
	}
	res, err := l.Take(t.Context(), "k", throttr.Limit{Max: 10, Calendar: throttr.Month, Zone: "Etc/UTC"}, 1)
	require.NoError(t, err)
	require.Equal(t, uint64(1), res.Count, "another name of a zone")
}

// A caller waits until the window of its turn begins. The length of a day in which clocks change is its own: it has
// 23 hours, also if the clock of the store is ahead.
func TestWaitersInADayOf23HoursWaitForItsEnd(t *testing.T) {
	for _, ahead := range []time.Duration{0, 30 * time.Minute} {
		synctest.Test(t, func(t *testing.T) { waitInADayOf23Hours(t, ahead) })
	}
}

func waitInADayOf23Hours(t *testing.T, ahead time.Duration) {
	clock := func() time.Time { return time.Now().Add(ahead) }
	l := throttr.NewRateLimit(inProcess(t, memory.WithClock(clock), memory.WithCleanPeriod(24*time.Hour)))
	limit := throttr.Limit{Max: 1, Calendar: throttr.Day, Zone: "Europe/Berlin"}
	time.Sleep(time.Until(time.Date(2000, 3, 25, 12, 0, 0, 0, time.UTC)))
	_, err := l.Take(t.Context(), "k", limit, 1)
	require.NoError(t, err)
	midnights := []time.Time{time.Date(2000, 3, 25, 23, 0, 0, 0, time.UTC), time.Date(2000, 3, 26, 22, 0, 0, 0, time.UTC)}
	got := make(chan time.Time, 1)
	for i, midnight := range midnights {
		midnight = midnight.Add(-ahead)
		begun := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), midnight.Add(-time.Minute))
		defer cancel()
		_, err = l.Wait(ctx, "k", limit, 1)
		var late *throttr.DeadlineError
		require.ErrorAs(t, err, &late)
		require.Equal(t, begun, time.Now(), "at once")
		require.WithinDuration(t, midnight, late.At, time.Second)
		ctx, cancel = context.WithDeadline(t.Context(), midnight.Add(time.Minute))
		defer cancel()
		if i == 0 {
			go func() {
				_, err := l.Wait(ctx, "k", limit, 1)
				require.NoError(t, err)
				got <- time.Now()
			}()
			synctest.Wait()
			continue
		}
		_, err = l.Wait(ctx, "k", limit, 1)
		require.NoError(t, err)
		require.WithinDuration(t, midnight, time.Now(), time.Second)
	}
	require.WithinDuration(t, midnights[0].Add(-ahead), <-got, time.Second)
}

// The fallback has windows of the calendar, too.
func TestCalendarLimitsWhileTheStoreIsAway(t *testing.T) {
	month := throttr.Limit{Max: 1, Calendar: throttr.Month}
	_, fallback, _ := at(t, "2018-03-31T23:00:00Z")
	l := throttr.NewRateLimit(failing(t, errDown), throttr.WithFallback(fallback), throttr.WithLogger(nil))
	for _, allowed := range []bool{true, false} {
		res, err := l.HitN(t.Context(), "k", month, 1)
		require.NoError(t, err)
		require.Equal(t, allowed, res.Allowed)
		require.True(t, res.Degraded)
		require.Equal(t, time.Hour, res.ResetAfter)
	}
	l = throttr.NewRateLimit(failing(t, errDown), throttr.WithPolicy(throttr.DenyHits), throttr.WithLogger(nil))
	res, err := l.HitN(t.Context(), "k", month, 1)
	require.NoError(t, err)
	require.Equal(t, time.Second, res.RetryAfter)
}
