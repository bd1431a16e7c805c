package algorithm

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// algorithms are those of limits with a scale, with a limit of 5.
func algorithms(scale time.Duration) map[window.Algorithm]Rule {
	rules := map[window.Algorithm]Rule{}
	for _, a := range limits.Algorithms {
		rules[a] = RuleOf(&window.Limit{Max: 5, Scale: scale, Algorithm: a})
	}
	return rules
}

func (by *Rule) Take(r *Record, t Time, n, series uint64) State {
	return by.Call(Take, r, t, n, series)
}

func (by *Rule) Charge(r *Record, t Time, n, series uint64) State {
	return by.Call(Charge, r, t, n, series)
}

func (by *Rule) Peek(r *Record, t Time, n uint64) State { return by.Call(Peek, r, t, n, 0) }

func at(now int64) Time { return At(time.Unix(0, now)) }

// Whatever a clock goes back by, or where it begins, 5 are granted and no more, and the sixth within two scales.
func TestAClockThatGoesBackGrantsNoMoreAndBlocksNobodyForLong(t *testing.T) {
	for _, scale := range []time.Duration{window.MinScale, time.Hour, window.MaxScale} {
		for _, back := range []time.Duration{1, scale / 2, scale - 1, scale, scale + 1, 3 * (scale / 2), window.MaxScale + 1} {
			for _, start := range []int64{0, 1, 1e18, math.MinInt64 / 4} {
				for a, rule := range algorithms(scale) {
					r := Record{}
					now := at(start)
					require.Zero(t, rule.Take(&r, now, 5, 1).Wait, "%v", a)
					now = at(start - int64(back))
					state := rule.Take(&r, now, 1, 2)
					require.Positive(t, state.Wait, "%v, %v back by %v", a, scale, back)
					require.EqualValues(t, 5, state.Count, "%v", a)
					// An aligned window and a sliding one have begun before.
					if most := 3 * uint64(scale); most <= math.MaxInt64 {
						require.LessOrEqual(t, uint64(state.Wait), most, "%v, %v back by %v", a, scale, back)
					}
					if state.Wait == window.Never-1 {
						continue // it is longer
					}
					state = rule.Take(&r, now.after(state.Wait), 1, 3)
					require.Zero(t, state.Wait, "%v, %v back by %v", a, scale, back)
				}
			}
		}
	}
}

// after returns the time that is d later.
func (t Time) after(d time.Duration) Time { return Time{Now: t.Now + int64(d), Last: t.Last} }

func TestNothingIsGivenBackToAnotherSeries(t *testing.T) {
	for a, rule := range algorithms(time.Minute) {
		r := Record{}
		now := at(1e18)
		var ids []int64
		for series := range uint64(1000) {
			id := rule.Take(&r, now, 3, series+1).ID
			for _, earlier := range ids {
				require.False(t, rule.GiveBack(&r, now, earlier, 3), "%v", a)
			}
			require.EqualValues(t, 3, rule.Peek(&r, now, 0).Count)
			ids = append(ids[max(0, len(ids)-20):], id, 0)
			r.End()
			require.True(t, r.Empty())
		}
	}
}

func TestABucketThatNeverGetsATokenCountsNothing(t *testing.T) {
	never := RuleOf(&window.Limit{Scale: time.Minute, Burst: 9, Algorithm: window.TokenBucket})
	some := RuleOf(&window.Limit{Scale: time.Minute, Max: 6, Burst: 9, Algorithm: window.TokenBucket})
	r := Record{}
	require.Equal(t, State{Wait: window.Never}, never.Charge(&r, at(1e18), 3, 1))
	require.Equal(t, State{Wait: window.Never}, never.Take(&r, at(1e18), 3, 1))
	require.True(t, r.Empty())
	some.Take(&r, at(1e18), 3, 1)
	require.Equal(t, window.Never, never.Take(&r, at(1e18), 1, 1).Wait)
	require.EqualValues(t, 1, never.Peek(&r, at(1e18+20e9), 0).Count, "tokens come back as before")
}

// A thousand takes are given back but for the first and the last: their times need no room.
func TestALogGrowsWithWhatItHolds(t *testing.T) {
	rule := RuleOf(&window.Limit{Scale: time.Hour, Max: 1000, Algorithm: window.SlidingLog})
	var r Record
	first := rule.Take(&r, at(1), 1, 1).ID
	last := rule.Take(&r, at(2), 1, 2).ID
	for i := range int64(100_000) {
		next := rule.Take(&r, at(3+i), 1, 3)
		require.Zero(t, next.Wait)
		require.True(t, rule.GiveBack(&r, at(3+i), last, 1))
		require.Equal(t, time.Hour, next.Left)
		last = next.ID
	}
	require.LessOrEqual(t, r.Log.Times(), 8)
	require.True(t, rule.GiveBack(&r, at(200_000), first, 1))
	require.EqualValues(t, 1, rule.Peek(&r, at(200_000), 0).Count)
	require.Equal(t, time.Hour-(200_000-100_002), rule.Peek(&r, at(200_000), 0).Left)
}

func TestATakeAtAnEarlierTimeIsOneOfItsOwn(t *testing.T) {
	rule := RuleOf(&window.Limit{Scale: time.Hour, Max: 9, Algorithm: window.SlidingLog})
	var r Record
	rule.Take(&r, at(1000), 2, 1)
	second := rule.Take(&r, at(2000), 3, 2).ID
	require.True(t, rule.GiveBack(&r, at(2000), second, 3))
	third := rule.Take(&r, at(500), 4, 3).ID // at the time of the first, as the clock has gone back
	require.NotEqual(t, second, third)
	require.Equal(t, time.Hour+500, rule.Left(&r, at(500)), "until nothing of the first counts")
	require.True(t, rule.GiveBack(&r, at(2000), third, 4))
	require.EqualValues(t, 2, rule.Peek(&r, at(2000), 0).Count)
}

// What a count that is as large as possible has counted is not known.
func TestACountThatWasTooLargeIsNotGivenBack(t *testing.T) {
	for _, a := range []window.Algorithm{window.FixedWindow, window.SlidingWindow} {
		rule, r := algorithms(time.Minute)[a], Record{}
		id := rule.Charge(&r, at(1), window.Unlimited-1, 1).ID
		require.EqualValues(t, uint64(window.Unlimited), rule.Charge(&r, at(1), 5, 2).Count)
		require.False(t, rule.GiveBack(&r, at(1), id, 5))
	}
}

// on returns an instant.
func on(t *testing.T, instant string) Time {
	now, err := time.Parse(time.RFC3339, instant)
	require.NoError(t, err)
	return At(now)
}

// Another process may have other zone data.
func TestACalendarWindowThatIsOpenKeepsItsEnd(t *testing.T) {
	day := window.Limit{Max: 5, Calendar: window.Day, Algorithm: window.CalendarWindow}
	utc := RuleOf(&day)
	inBerlin := day
	inBerlin.Zone = "Europe/Berlin"
	berlin := RuleOf(&inBerlin)
	var r Record
	first := berlin.Take(&r, on(t, "2018-03-25T12:00:00Z"), 3, 1)
	require.Equal(t, State{Count: 3, Left: 10 * time.Hour, ID: 1}, first)
	refused := utc.Take(&r, on(t, "2018-03-25T21:59:59.5Z"), 3, 2)
	require.Equal(t, State{Count: 3, Left: time.Second / 2, Wait: time.Second / 2, ID: 1}, refused)
	next := utc.Take(&r, on(t, "2018-03-25T22:00:00Z"), 5, 3)
	require.Equal(t, State{Count: 5, Left: 2 * time.Hour, ID: 3}, next)
	require.False(t, utc.GiveBack(&r, on(t, "2018-03-25T22:00:00Z"), first.ID, 1))
	require.True(t, utc.GiveBack(&r, on(t, "2018-03-25T22:00:00Z"), next.ID, 1))
}

// Up to a window back, it is open until its end. From there on, it counts in the window that the clock shows.
func TestAClockThatGoesBackBySeveralDaysStartsTheDayWithItsCount(t *testing.T) {
	rule := RuleOf(&window.Limit{Max: 5, Calendar: window.Day, Algorithm: window.CalendarWindow})
	for instant, left := range map[string]time.Duration{
		"2018-03-25T01:00:00Z": 23 * time.Hour, "2018-03-24T12:00:00Z": 36 * time.Hour, "2018-03-24T00:00:00Z": 48 * time.Hour,
		"2018-03-23T23:59:59Z": time.Second, "1965-03-20T18:00:00Z": 6 * time.Hour,
	} {
		var r Record
		rule.Take(&r, on(t, "2018-03-25T12:00:00Z"), 5, 1)
		require.Equal(t, State{Count: 5, Left: left, Wait: left, ID: 1}, rule.Take(&r, on(t, instant), 1, 2), instant)
	}
}
