package limits

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// maxCalendars is how many calendars are kept. Few programs have more than some.
const maxCalendars = 1000

// calendars has the calendars of limits, with their locations.
var calendars struct {
	sync.RWMutex
	of map[calendarID]*Calendar
}

type calendarID struct {
	zone     string
	unit     window.Calendar
	startDay uint8
}

// CalendarOf returns the calendar of a limit. The error is a RangeError: the zone is not known. Then it is UTC.
func CalendarOf(l *window.Limit) (*Calendar, error) {
	id := calendarID{zone(l), l.Calendar, startDay(l)}
	calendars.RLock()
	c := calendars.of[id]
	calendars.RUnlock()
	if c != nil {
		return c, nil
	}
	c = &Calendar{Unit: l.Calendar, Zone: time.UTC, StartDay: max(1, int(l.StartDay))}
	if id.zone != "" {
		zone, err := loadZone(id.zone, time.LoadLocation)
		if err != nil {
			return c, err
		}
		c.Zone = zone
	}
	calendars.Lock()
	defer calendars.Unlock()
	if calendars.of == nil || len(calendars.of) >= maxCalendars {
		calendars.of = make(map[calendarID]*Calendar)
	}
	calendars.of[id] = c
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
	return nil, &window.RangeError{Field: "Zone", Value: fmt.Sprintf("%.*q", maxName, name), Bound: bound}
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
