package rediswindow

import (
	"fmt"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// appendBounds appends the bounds of the calendar window of the store's time in microseconds, or if that is 0 of the
// client's, in microseconds: START~END.
func (b *Backend) appendBounds(to []byte, l *window.Limit, now float64) []byte {
	at := time.Now()
	switch {
	case now != 0:
		at = time.UnixMicro(int64(now))
	case b.now != nil:
		at = b.now()
	}
	calendar, _ := limits.CalendarOf(l) // of a zone that is not known, as List may find one, that of UTC
	start, end := calendar.Window(at)
	return fmt.Appendf(to, "%d~%d", start.UnixMicro(), end.UnixMicro())
}

// appendCalendar appends what tells calendars apart: unit, start day and zone.
func appendCalendar(to []byte, l *window.Limit) []byte {
	of := limits.Identity(l)
	return fmt.Appendf(to, "%d,%d,%s", uint8(of.Calendar), of.StartDay, of.Zone)
}

// readCalendar reads what appendCalendar has appended, at the end of a field. It reports whether it may have.
func readCalendar(field string, l *window.Limit) bool {
	parts := strings.SplitN(field[strings.LastIndexByte(field, ' ')+1:], ",", 3)
	if len(parts) < 3 {
		return false
	}
	_, err := fmt.Sscanf(parts[0]+" "+parts[1], "c%d %d", &l.Calendar, &l.StartDay)
	l.Zone = parts[2]
	return err == nil && l.Calendar != 0
}
