package throttr_test

import (
	"context"
	"errors"
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
	l, store, clock := at(t, "2018-03-16T23:00:00Z", throttr.WithAlgorithm(throttr.TokenBucket))
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

	listed := 0
	for c, err := range store.List(ctx, "k") {
		require.NoError(t, err)
		if c.Limit.Name == berlinMonth.Name {
			listed++
			require.Equal(t, count, c.Window.Count)
			require.True(t, end.Equal(c.Window.ExpiresAt))
			require.Equal(t, throttr.CalendarWindow, c.Limit.Algorithm)
			require.Equal(t, berlinMonth.Calendar, c.Limit.Calendar)
			require.Equal(t, berlinMonth.Zone, c.Limit.Zone)
			require.Equal(t, berlinMonth.StartDay, c.Limit.StartDay)
			require.Zero(t, c.Limit.Scale)
		}
	}
	require.Equal(t, 1, listed)

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

// A mistake in a limit with a calendar is an error of every call, whatever the policy is.
func TestMistakesInCalendarLimitsAreErrorsOfEveryCall(t *testing.T) {
	l := throttr.NewRateLimit(inProcess(t), throttr.WithPolicy(throttr.AllowHits), throttr.WithFallback(inProcess(t)))
	for field, limit := range map[string]throttr.Limit{
		"Calendar":  {Max: 5, Scale: time.Minute, Algorithm: throttr.CalendarWindow},
		"Scale":     {Max: 5, Scale: time.Minute, Calendar: throttr.Month},
		"Algorithm": {Max: 5, Calendar: throttr.Month, Algorithm: throttr.TokenBucket},
		"StartDay":  {Max: throttr.Unlimited, Scale: time.Minute, StartDay: 2},
		"Zone":      {Max: 0, Calendar: throttr.Day, Zone: "Local"},
	} {
		errs := map[string]error{"Check": l.Check(limit), "Forget": l.Forget(t.Context(), "k", limit)}
		_, errs["HitN"] = l.HitN(t.Context(), "k", limit, 1)
		_, errs["Take"] = l.Take(t.Context(), "k", limit, 1)
		_, errs["Peek"] = l.Peek(t.Context(), "k", limit, 1)
		_, errs["Charge"] = l.Charge(t.Context(), "k", limit, 1)
		_, errs["Wait"] = l.Wait(t.Context(), "k", limit, 1)
		_, _, errs["TakeAll"] = l.TakeAll(t.Context(), limit.For("k", 1), limit.For("l", 1))
		_, _, errs["Reserve"] = l.Reserve(t.Context(), limit.For("k", 1))
		for call, err := range errs {
			var e *throttr.RangeError
			require.ErrorAs(t, err, &e, "%s of %v", call, limit)
			require.Equal(t, field, e.Field, call)
		}
	}
}

// It is 2000-01-01T00:00:00Z in the bubble.
func TestWaitersOfACalendarLimitWaitForTheEndsOfTheirWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := throttr.NewRateLimit(memory.New())
		limit := throttr.Limit{Max: 1, Calendar: throttr.Day, Zone: "Asia/Kathmandu"}
		time.Sleep(time.Hour)
		_, err := l.Take(t.Context(), "k", limit, 1)
		require.NoError(t, err)
		begun := time.Now()
		midnight := time.Date(2000, 1, 1, 18, 15, 0, 0, time.UTC)

		short, cancel := context.WithDeadline(t.Context(), midnight.Add(-time.Second))
		defer cancel()
		_, err = l.Wait(short, "k", limit, 1)
		var late *throttr.DeadlineError
		require.ErrorAs(t, err, &late)
		require.Equal(t, begun, time.Now(), "at once")
		require.WithinDuration(t, midnight, late.At, time.Second)

		got := make(chan time.Time, 2)
		for range 2 {
			go func() {
				_, err := l.Wait(t.Context(), "k", limit, 1)
				require.NoError(t, err)
				got <- time.Now()
			}()
			synctest.Wait()
		}
		for days := range 2 {
			next, cancel := context.WithDeadline(t.Context(), midnight.AddDate(0, 0, days+1).Add(time.Hour))
			_, err := l.Wait(next, "k", limit, 1)
			cancel()
			require.True(t, errors.As(err, &late) == (days == 0), "%v", err)
			if days == 0 {
				require.Equal(t, begun, time.Now(), "two wait before, so its turn is in the third day")
				require.WithinDuration(t, midnight.AddDate(0, 0, 2), late.At, time.Second)
			}
		}
		require.WithinDuration(t, midnight, <-got, time.Second)
		require.WithinDuration(t, midnight.AddDate(0, 0, 1), <-got, time.Second)
		require.WithinDuration(t, midnight.AddDate(0, 0, 2), time.Now(), time.Second)
	})
}

// The length of a day in which clocks change is its own: two waiters wait for 23 hours longer than one.
func TestWaitersInADayOf23HoursWaitForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := throttr.NewRateLimit(memory.New())
		limit := throttr.Limit{Max: 1, Calendar: throttr.Day, Zone: "Europe/Berlin"}
		time.Sleep(time.Until(time.Date(2000, 3, 25, 12, 0, 0, 0, time.UTC)))
		_, err := l.Take(t.Context(), "k", limit, 1)
		require.NoError(t, err)
		go func() { _, _ = l.Wait(t.Context(), "k", limit, 1) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 34*time.Hour-time.Minute)
		defer cancel()
		_, err = l.Wait(ctx, "k", limit, 1)
		var late *throttr.DeadlineError
		require.ErrorAs(t, err, &late)
		require.WithinDuration(t, time.Date(2000, 3, 26, 22, 0, 0, 0, time.UTC), late.At, time.Second)
		ctx, cancel = context.WithTimeout(t.Context(), 34*time.Hour+time.Minute)
		defer cancel()
		_, err = l.Wait(ctx, "k", limit, 1)
		require.NoError(t, err)
		require.WithinDuration(t, late.At, time.Now(), time.Second)
	})
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
