package limits

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

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
