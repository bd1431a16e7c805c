package limits_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
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

func TestScalesOutOfRangeAreRefused(t *testing.T) {
	for _, scale := range []time.Duration{math.MinInt64, -time.Second, -1, 0, 1, 60, time.Microsecond, window.MinScale - 1} {
		err := limits.CheckScale(scale)
		require.ErrorIs(t, err, window.ErrScale, "%v", scale)
		require.ErrorContains(t, err, "did you forget the unit?")
		require.ErrorContains(t, err, scale.String())
		require.ErrorIs(t, limits.Check(&window.Limit{Max: 1, Scale: scale, Algorithm: window.FixedWindow}), window.ErrScale)
	}
	for _, scale := range []time.Duration{window.MinScale, window.MinScale + 1, time.Hour, window.MaxScale} {
		require.NoError(t, limits.CheckScale(scale), "%v", scale)
	}
	for _, scale := range []time.Duration{window.MaxScale + 1, math.MaxInt64} {
		err := limits.CheckScale(scale)
		require.ErrorIs(t, err, window.ErrScale)
		require.ErrorContains(t, err, "more than 146 years")
	}
}

func TestCheckNamesTheFieldThatIsOutOfRange(t *testing.T) {
	minus := -7
	month := window.Limit{Max: 1, Calendar: window.Month, Zone: "Europe/Berlin", StartDay: 31, Algorithm: window.CalendarWindow}
	hour := window.Limit{Max: 1, Scale: time.Hour, Algorithm: window.FixedWindow}
	bucket := window.Limit{Name: " ~" + strings.Repeat("n", 62), Max: 1, Scale: time.Hour, Burst: 1_000_000, Algorithm: window.TokenBucket}
	for _, c := range []struct {
		of     window.Limit
		change func(l *window.Limit)
		field  string // "": it is valid
		bound  string
	}{
		{month, func(*window.Limit) {}, "", ""},
		{month, func(l *window.Limit) { l.Zone, l.StartDay = "", 0 }, "", ""},
		{month, func(l *window.Limit) { l.Zone = "UTC" }, "", ""},
		{month, func(l *window.Limit) { l.Calendar, l.StartDay = window.Week, 7 }, "", ""},
		{month, func(l *window.Limit) { l.Calendar, l.StartDay = window.Day, 0 }, "", ""},
		{month, func(l *window.Limit) { l.Calendar, l.StartDay = window.Year, 0 }, "", ""},
		{month, func(l *window.Limit) { l.Calendar = window.Year + 1 }, "Calendar", "month"},
		{month, func(l *window.Limit) { l.Scale = time.Hour }, "Scale", "Calendar"},
		{month, func(l *window.Limit) { l.Scale = -1 }, "Scale", "Calendar"},
		{month, func(l *window.Limit) { l.Algorithm = window.TokenBucket }, "Algorithm", "calendar-window"},
		{month, func(l *window.Limit) { l.Algorithm = 200 }, "Algorithm", "calendar-window"},
		{month, func(l *window.Limit) { l.StartDay = 32 }, "StartDay", "31"},
		{month, func(l *window.Limit) { l.Calendar, l.StartDay = window.Week, 8 }, "StartDay", "7"},
		{month, func(l *window.Limit) { l.Calendar, l.StartDay = window.Day, 1 }, "StartDay", "a day has no"},
		{month, func(l *window.Limit) { l.Calendar, l.StartDay = window.Year, 1 }, "StartDay", "a year has no"},
		{month, func(l *window.Limit) { l.Zone = "Mars/Olympus" }, "Zone", "Europe/Berlin"},
		{month, func(l *window.Limit) { l.Zone = "Local" }, "Zone", "machine"},
		{month, func(l *window.Limit) { l.Burst = 2 }, "Burst", "bucket"},
		{hour, func(l *window.Limit) { l.Zone = "Europe/Berlin" }, "Zone", "without a Calendar"},
		{hour, func(l *window.Limit) { l.StartDay = 1 }, "StartDay", "without a Calendar"},
		{hour, func(l *window.Limit) { l.Algorithm = window.CalendarWindow }, "Calendar", "month"},
		{bucket, func(*window.Limit) {}, "", ""},
		{bucket, func(l *window.Limit) { l.Max, l.Burst = 2, 2_000_000 }, "", ""},
		{bucket, func(l *window.Limit) { l.Burst = 2_000_000 }, "Burst", ""}, // 228 years
		{bucket, func(l *window.Limit) { l.Burst, l.Scale = window.Unlimited, window.MaxScale }, "Burst", ""},
		{bucket, func(l *window.Limit) { l.Max, l.Burst = 0, window.Unlimited }, "", ""}, // it denies, whatever the burst is
		{bucket, func(l *window.Limit) { l.Burst = uint64(minus) }, "Burst", ""},
		{bucket, func(l *window.Limit) { l.Max = uint64(minus) }, "Max", ""},
		{bucket, func(l *window.Limit) { l.Name = strings.Repeat("n", 65) }, "Name", ""},
		{bucket, func(l *window.Limit) { l.Name = "new\nline" }, "Name", ""},
		{bucket, func(l *window.Limit) { l.Name = "\x7f" }, "Name", ""},
		{bucket, func(l *window.Limit) { l.Name = "naïve" }, "Name", ""},
	} {
		l := c.of
		c.change(&l)
		if c.field == "" {
			require.NoError(t, limits.Check(&l), "%+v", l)
			require.Equal(t, c.of == month, limits.HasCalendar(&l))
			continue
		}
		var e *window.RangeError
		require.ErrorAs(t, limits.Check(&l), &e, "%+v", l)
		require.Equal(t, c.field, e.Field)
		require.Contains(t, e.Bound, c.bound)
		require.ErrorIs(t, e, window.ErrRange)
	}
	for _, a := range limits.Algorithms {
		l := window.Limit{Max: 1, Scale: time.Second, Algorithm: a}
		require.NoError(t, limits.Check(&l), "%v", a)
		l.Burst = 1
		require.Equal(t, a != window.TokenBucket, errors.Is(limits.Check(&l), window.ErrRange), "%v", a)
	}
	for _, a := range []window.Algorithm{0, 77} {
		hour.Algorithm = a
		require.ErrorIs(t, limits.Check(&hour), window.ErrUnsupported, "a backend gets the algorithm")
	}
	month.Algorithm = 0
	require.ErrorIs(t, limits.Check(&month), window.ErrUnsupported)
}

func TestTakesOfOneCountAreOneTakeOfTheirSumUnderTheLowestMaxAndBurst(t *testing.T) {
	bucket := window.Limit{Max: 10, Scale: time.Second, Burst: 20, Algorithm: window.TokenBucket}
	lower := bucket
	lower.Max, lower.Burst = 5, 0
	named := bucket
	named.Name = "named"
	for _, change := range []func(*window.Limit){
		func(l *window.Limit) { l.Calendar = window.Day },
		func(l *window.Limit) { l.StartDay = 2 },
		func(l *window.Limit) { l.Zone = "Asia/Tokyo" },
	} {
		other := bucket
		change(&other)
		_, index := limits.Merge([]window.Take{bucket.For("a", 1), other.For("a", 1)})
		require.Nil(t, index, "one count of %v and %v", bucket, other)
	}
	month := window.Limit{Max: 1, Calendar: window.Month, Zone: "UTC", Algorithm: window.CalendarWindow}
	first := month
	first.Zone, first.StartDay = "", 1
	_, index := limits.Merge([]window.Take{month.For("a", 1), first.For("a", 1)})
	require.Equal(t, []int{0, 0}, index, "two counts of %v and %v", month, first)
	takes := []window.Take{bucket.For("a", 1), named.For("a", 2), lower.For("a", 4), bucket.For("b", 8)}
	merged, index := limits.Merge(takes)
	require.Equal(t, []int{0, 1, 0, 2}, index)
	lowest := bucket
	lowest.Max, lowest.Burst = 5, 5
	require.Equal(t, []window.Take{lowest.For("a", 5), named.For("a", 2), bucket.For("b", 8)}, merged)
	require.Equal(t, bucket.For("a", 1), takes[0], "the caller's takes are changed")

	windows := make([]window.Window, len(takes))
	right := func(*window.Take) error { return nil }
	granted, key, err := limits.TakeAll(t.Context(), takes, windows, right, func(_ context.Context, of []window.Take, windows []window.Window) (bool, error) {
		require.Equal(t, merged, of)
		copy(windows, []window.Window{{Count: 1}, {Count: 2}, {Count: 3}})
		return true, window.ErrFull
	})
	require.True(t, granted)
	require.Equal(t, "a", key)
	require.ErrorIs(t, err, window.ErrFull)
	require.Equal(t, []window.Window{{Count: 1}, {Count: 2}, {Count: 1}, {Count: 3}}, windows)
	last := func(of *window.Take) error {
		if of.Key == "b" {
			return fmt.Errorf("of %d", of.N)
		}
		return nil
	}
	_, key, err = limits.TakeAll(t.Context(), takes, windows, last, nil)
	require.Equal(t, "b", key)
	require.EqualError(t, err, "of 8")
	granted, _, err = limits.TakeAll(t.Context(), nil, nil, nil, nil)
	require.True(t, granted && err == nil)

	same, none := limits.Merge(takes[:2])
	require.Nil(t, none)
	require.Equal(t, takes[:2], same)
	most := bucket.For("a", window.Unlimited)
	merged, _ = limits.Merge([]window.Take{most, most, most})
	require.Equal(t, []window.Take{bucket.For("a", window.Unlimited+1)}, merged, "a sum that is too large is over every Max")
}

func TestAlignedWindowStartsAtMultiplesSince1970(t *testing.T) {
	const week = 7 * 24 * time.Hour
	utc := func(s string) time.Time {
		when, err := time.Parse(time.RFC3339Nano, s)
		require.NoError(t, err)
		return when.UTC()
	}
	for _, test := range []struct {
		now   string
		scale time.Duration
		want  string
	}{
		{"2030-01-01T10:00:00Z", time.Hour, "2030-01-01T10:00:00Z"},
		{"2030-01-01T10:59:59.999999999Z", time.Hour, "2030-01-01T10:00:00Z"},
		{"2030-01-01T10:00:00.000000123Z", 10, "2030-01-01T10:00:00.00000012Z"},
		{"2030-01-01T10:00:00.000000123Z", 1, "2030-01-01T10:00:00.000000123Z"},
		{"1970-01-01T00:00:00Z", week, "1970-01-01T00:00:00Z"},
		{"1970-01-08T00:00:00Z", week, "1970-01-08T00:00:00Z"},
		{"1969-12-31T23:59:59.999999999Z", week, "1969-12-25T00:00:00Z"},
		{"1969-12-25T00:00:00Z", week, "1969-12-25T00:00:00Z"},
		{"1969-12-31T23:59:59.5Z", time.Second, "1969-12-31T23:59:59Z"},
		{"0001-01-01T00:00:00Z", time.Minute, "0001-01-01T00:00:00Z"},
		{"0001-01-01T00:00:00Z", week, "0000-12-28T00:00:00Z"},
		{"2030-01-01T00:00:00Z", math.MaxInt64, "1970-01-01T00:00:00Z"},
		{"2030-01-01T00:00:00.5Z", 0, "2030-01-01T00:00:00.5Z"},
	} {
		for _, zone := range []*time.Location{time.UTC, time.FixedZone("", 5*3600+1800)} { // on which nothing depends
			got := limits.AlignedStart(utc(test.now).In(zone), test.scale)
			require.Equal(t, utc(test.want).In(zone), got, "%s, %v", test.now, test.scale)
		}
	}
}

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
