package algorithm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

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
