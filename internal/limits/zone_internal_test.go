package limits

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

func TestWithoutZoneDataTheErrorSaysHowToEmbedIt(t *testing.T) {
	_, err := loadZone("Europe/Berlin", func(string) (*time.Location, error) { return nil, errors.New("none") })
	require.ErrorContains(t, err, `import _ "time/tzdata"`)
	_, err = loadZone("Mars/Olympus", time.LoadLocation)
	require.NotContains(t, err.Error(), "tzdata")
}

func TestABoundedNumberOfCalendarsIsKept(t *testing.T) {
	_, err := CalendarOf(&window.Limit{Calendar: window.Day})
	require.NoError(t, err)
	calendars.Lock()
	for i := len(calendars.of); i < maxCalendars; i++ {
		calendars.of[calendarID{zone: time.Duration(i).String()}] = new(Calendar)
	}
	calendars.Unlock()
	_, err = CalendarOf(&window.Limit{Calendar: window.Day, Zone: "Africa/Lome"})
	require.NoError(t, err)
	require.Len(t, calendars.of, 1)
}
