package limits_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

func TestWindowsOfTheCalendarMatchTheVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/calendar-window.json")
	require.NoError(t, err)
	var file struct {
		Vectors []struct {
			Why, Zone       string
			Calendar        window.Calendar
			StartDay        uint8 `json:"start_day"`
			Now, Start, End time.Time
		}
	}
	require.NoError(t, json.Unmarshal(text, &file))
	require.NotEmpty(t, file.Vectors)
	zones := zoneData(t)
	for _, v := range file.Vectors {
		c := limits.Calendar{Unit: v.Calendar, Zone: zones[v.Zone], StartDay: max(1, int(v.StartDay))}
		require.NotNil(t, c.Zone, v.Zone)
		start, end := c.Window(v.Now)
		require.Equal(t, v.Start, start, "start of %+v", v)
		require.Equal(t, v.End, end, "end of %+v", v)
	}
}

// zoneData returns all zones of the zone database that comes with Go, and UTC.
func zoneData(t *testing.T) map[string]*time.Location {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	files, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer files.Close()
	zones := map[string]*time.Location{"UTC": time.UTC}
	for _, f := range files.File {
		r, err := f.Open()
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		if !bytes.HasPrefix(data, []byte("TZif")) {
			continue // a folder
		}
		zones[f.Name], err = time.LoadLocationFromTZData(f.Name, data)
		require.NoError(t, err, f.Name)
	}
	require.Greater(t, len(zones), 300)
	return zones
}

// Each window is found from its first and last instant and from one between, and the next one starts where it ends.
// With THROTTR_SLOW_TESTS=1, that is tested with all zones, and with ten years.
func TestWindowsOfTheCalendarTileTime(t *testing.T) {
	zones, years := zoneData(t), 10
	if os.Getenv("THROTTR_SLOW_TESTS") != "1" {
		years = 2
		for name := range zones {
			if rand.IntN(30) > 0 && name != "Pacific/Apia" && name != "America/St_Johns" {
				delete(zones, name)
			}
		}
	}
	for name, zone := range zones {
		from := time.Date(2008+rand.IntN(20), 1, 1, 0, 0, 0, 0, time.UTC)
		if name == "Pacific/Apia" || name == "America/St_Johns" {
			from = time.Date(2010, 6, 1, 0, 0, 0, 0, time.UTC)
		}
		for _, c := range []limits.Calendar{ // of all units, and of a few start days
			{Unit: window.Day, Zone: zone, StartDay: 1}, {Unit: window.Year, Zone: zone, StartDay: 1},
			{Unit: window.Week, Zone: zone, StartDay: 1}, {Unit: window.Week, Zone: zone, StartDay: 7},
			{Unit: window.Month, Zone: zone, StartDay: 1}, {Unit: window.Month, Zone: zone, StartDay: 30},
		} {
			tile(t, c, from, from.AddDate(years, 0, 0))
		}
	}
}

// tile fails the test unless windows of c tile the time between two instants.
func tile(t *testing.T, c limits.Calendar, from, until time.Time) {
	longest := map[window.Calendar]time.Duration{ // clocks of Antarctica/Casey were set back by three hours
		window.Day: 24 + 3, window.Week: 7*24 + 3, window.Month: 31*24 + 3, window.Year: 366*24 + 3,
	}
	for start, end := c.Window(from); start.Before(until); {
		length := end.Sub(start)
		if length <= 0 || length > longest[c.Unit]*time.Hour {
			t.Fatalf("%+v: a window from %v to %v", c, start, end)
		}
		for _, at := range []time.Time{start, end.Add(-1), start.Add(rand.N(length))} {
			if s, e := c.Window(at); !s.Equal(start) || !e.Equal(end) {
				t.Fatalf("%+v: a window from %v to %v, but at %v from %v to %v", c, start, end, at, s, e)
			}
		}
		next, e := c.Window(end)
		if !next.Equal(end) {
			t.Fatalf("%+v: a window ends at %v, and the next starts at %v", c, end, next)
		}
		start, end = next, e
	}
}

func TestZonesThatDependOnTheMachineAreRefused(t *testing.T) {
	for _, name := range []string{
		"Local", "local", "LOCAL", "localtime", "posixrules", "posix/Europe/Berlin", "right/Europe/Berlin", "right/UTC", "Posix/UTC",
		"./localtime", "Europe/../localtime", "/etc/localtime", "Europe//Berlin", "Europe/Berlin/", "./Europe/Berlin", `Europe\Berlin`,
		"Mars/Olympus", "Europe", "tzdata.zi", "zone.tab", "leapseconds", "Europe/Berlin\x00", "Zürich", " UTC", strings.Repeat("z", 5000),
	} {
		c, err := limits.CalendarOf(&window.Limit{Calendar: window.Day, Zone: name})
		var field *window.RangeError
		require.ErrorAs(t, err, &field, "%.100q", name)
		require.Equal(t, time.UTC, c.Zone)
		require.Equal(t, "Zone", field.Field)
		require.Less(t, len(err.Error()), 300)
	}
}

func TestZonesAreKept(t *testing.T) {
	of := func(zone string, startDay uint8) limits.Calendar {
		c, err := limits.CalendarOf(&window.Limit{Calendar: window.Month, Zone: zone, StartDay: startDay})
		require.NoError(t, err)
		return c
	}
	for _, name := range []string{"Europe/Berlin", "Europe/Vienna", "America/Argentina/ComodRivadavia", "Etc/GMT+12", "EST5EDT"} {
		require.Equal(t, name, of(name, 31).Zone.String())
		require.Same(t, of(name, 0).Zone, of(name, 2).Zone)
		require.Equal(t, of(name, 0), of(name, 1))
	}
	require.Equal(t, limits.Calendar{Unit: window.Month, Zone: time.UTC, StartDay: 1}, of("UTC", 0))
	require.Zero(t, testing.AllocsPerRun(100, func() { of("Europe/Berlin", 1) }))
}
