package limits

import (
	"fmt"
	"io/fs"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// maxStartDay has the largest StartDay of each unit.
var maxStartDay = [...]uint8{window.Day: 0, window.Week: 7, window.Month: 31, window.Year: 0}

// checkCalendar returns a RangeError if one of the fields of calendar windows is out of range, or does not go with
// the others.
func checkCalendar(l *window.Limit) error {
	switch {
	case l.Calendar == 0 && l.Zone != "":
		return outOfRange("Zone", fmt.Sprintf("%.*q", maxName, l.Zone), "empty without a Calendar")
	case l.Calendar == 0 && l.StartDay != 0:
		return outOfRange("StartDay", strconv.Itoa(int(l.StartDay)), "0 without a Calendar")
	case l.Calendar == 0 || l.Calendar > window.Year:
		return outOfRange("Calendar", strconv.Itoa(int(l.Calendar)), "a day, week, month or year")
	case l.Scale != 0:
		return outOfRange("Scale", l.Scale.String(), "0 beside a Calendar")
	case l.Algorithm != 0 && l.Algorithm != window.CalendarWindow:
		return outOfRange("Algorithm", l.Algorithm.String(), window.CalendarWindow.String()+" beside a Calendar")
	}
	if most := maxStartDay[l.Calendar]; l.StartDay > most {
		bound := fmt.Sprintf("1 to %d, of a %v", most, l.Calendar)
		if most == 0 {
			bound = fmt.Sprintf("0, as a %v has no days to start on", l.Calendar)
		}
		return outOfRange("StartDay", strconv.Itoa(int(l.StartDay)), bound)
	}
	_, err := CalendarOf(l)
	return err
}

// Length returns the length of the windows of a limit that has been checked: of calendar windows, that of the one in
// which an instant is.
func Length(l *window.Limit, at time.Time) time.Duration {
	if l.Calendar == 0 {
		return l.Scale
	}
	c, _ := CalendarOf(l)
	start, end := c.Window(at)
	return end.Sub(start)
}

// Left returns for how long a window is active that opens now, of a limit that has been checked.
func Left(l *window.Limit, now time.Time) time.Duration {
	if l.Calendar == 0 && l.Algorithm != window.AlignedWindow {
		return l.Scale
	}
	c, _ := CalendarOf(l)
	_, end := c.Window(now)
	return end.Sub(now)
}

// zeroUnix is the zero time.Time in seconds since 1970.
const zeroUnix = -62135596800

// AlignedStart returns when the aligned window of now starts: at a multiple of the scale since 1970.
func AlignedStart(now time.Time, scale time.Duration) time.Time {
	// Truncate counts from the zero time, so now is shifted by the difference between that
	// and 1970. Unlike UnixNano, this works in any year.
	shifted := time.Unix(now.Unix()+zeroUnix, int64(now.Nanosecond()))
	return now.Add(shifted.Truncate(scale).Sub(shifted))
}

// Calendar is what calendar windows and aligned ones depend on. Windows tile time: each ends where the next one starts.
//
// A window of the calendar starts at the first instant at which the local date is its start date, or a later one if
// the zone has skipped that date. So a day that was skipped has no window, and if a date comes back because clocks
// are set back over midnight, the window of the next date, which is open by then, goes on.
type Calendar struct {
	Unit     window.Calendar
	Zone     *time.Location
	StartDay int           // 1 or more
	Scale    time.Duration // of aligned windows, which have no Unit
}

// Window returns the bounds of the window that now is in: from start until end, exclusive.
func (c *Calendar) Window(now time.Time) (start, end time.Time) {
	if c.Unit == 0 {
		start = AlignedStart(now, c.Scale)
		return start, start.Add(c.Scale)
	}
	y, m, d := now.In(c.Zone).Date()
	begins := c.startDate(date(y, m, d), 0)
	start = firstInstant(c.Zone, begins)
	for {
		begins = c.startDate(begins, 1)
		end = firstInstant(c.Zone, begins)
		if now.Before(end) {
			return start, end
		}
		start = end // now has an earlier date: clocks were set back
	}
}

// startDate returns the start date of the nth window after the one that a date is in.
func (c *Calendar) startDate(of time.Time, n int) time.Time {
	y, m, d := of.Date()
	switch c.Unit {
	case window.Week:
		since := (int(of.Weekday()) - c.StartDay + 7) % 7 // Sunday is 0, and as a StartDay 7
		return date(y, m, d-since+7*n)
	case window.Month:
		if d < c.startOfMonth(y, m).Day() {
			n--
		}
		return c.startOfMonth(y, m+time.Month(n))
	case window.Year:
		return date(y+n, time.January, 1)
	default:
		return date(y, m, d+n)
	}
}

// startOfMonth returns the StartDay of a month, or its last day if it is shorter.
func (c *Calendar) startOfMonth(y int, m time.Month) time.Time {
	last := date(y, m+1, 0).Day()
	return date(y, m, min(c.StartDay, last))
}

// date returns a date of the calendar: as its midnight in UTC, where every day has one, and 24 hours.
func date(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }

// maxOffset is more than any clock has been ahead of UTC or behind it. In twice that time, no zone has changed its
// offset more than once.
const maxOffset = 26 * 60 * 60

// firstInstant returns the first instant at which the date in a zone is a given one or later.
//
// A zone's midnight is its offset before midnight in UTC. If the offset changes on that day, the midnight by the
// old one counts if it comes before the change, even if clocks are then set back. Otherwise the day starts with the
// change, if that skips midnight, or at the midnight by the new offset.
func firstInstant(zone *time.Location, date time.Time) time.Time {
	midnight := date.Unix()
	offset := func(sec int64) int64 {
		_, offset := time.Unix(sec, 0).In(zone).Zone()
		return int64(offset)
	}
	early := midnight - maxOffset
	before, after := offset(early), offset(midnight+maxOffset)
	first := midnight - before
	if before != after {
		change := early + int64(sort.Search(2*maxOffset, func(i int) bool { return offset(early+int64(i)) != before }))
		if first >= change {
			first = max(change, midnight-after)
		}
	}
	return time.Unix(first, 0).UTC()
}

var (
	zonesMu sync.RWMutex                  // guards zones
	zones   = map[string]*time.Location{} // that have been loaded, by name
)

// CalendarOf returns the calendar of a limit. The error is a RangeError: the zone is not known. Then it is UTC.
func CalendarOf(l *window.Limit) (Calendar, error) {
	c := Calendar{Unit: l.Calendar, Zone: time.UTC, StartDay: max(1, int(l.StartDay)), Scale: l.Scale}
	name := l.Zone
	if name == "" || name == "UTC" {
		return c, nil
	}
	zonesMu.RLock()
	zone := zones[name]
	zonesMu.RUnlock()
	if zone == nil {
		loaded, err := loadZone(name, time.LoadLocation)
		if err != nil {
			return c, err
		}
		zonesMu.Lock()
		zones[name] = loaded
		zonesMu.Unlock()
		zone = loaded
	}
	c.Zone = zone
	return c, nil
}

func loadZone(name string, load func(name string) (*time.Location, error)) (*time.Location, error) {
	bound := "an IANA name that the zone data of this machine has, such as Europe/Berlin, and does not depend on the machine"
	if isZoneName(name) && !isLocal(name) {
		location, err := load(name)
		if err == nil {
			return location, nil
		}
		if _, err := load("Europe/Berlin"); err != nil {
			bound = `UTC, as this machine has no zone data; embed it: import _ "time/tzdata"`
		}
	}
	return nil, outOfRange("Zone", fmt.Sprintf("%.*q", maxName, name), bound)
}

// isZoneName reports whether a name is written as those of zones. Others may be a second path of a file.
func isZoneName(name string) bool {
	return len(name) <= maxName && fs.ValidPath(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			strings.ContainsRune("_+-/", r))
	})
}

// isLocal reports whether a name is that of a zone that depends on the machine: its own one, or one that not all
// machines have. A file system may ignore case.
func isLocal(name string) bool {
	dir, _, _ := strings.Cut(name, "/")
	for _, local := range []string{"Local", "localtime", "posixrules", "posix", "right"} {
		if strings.EqualFold(dir, local) {
			return true
		}
	}
	return false
}
