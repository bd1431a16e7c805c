package rediswindow

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// retries is how often a call is made again because a calendar window could not open: the clock of the store was in
// another one than that of this process. Then the client knows the store's time. The window may end meanwhile.
const retries = 2

// appendBounds appends the bounds of the calendar window of the store's time, or if that is not known of the
// client's, in microseconds: START~END.
func (b *Backend) appendBounds(to []byte, q *question) []byte {
	now := time.Now()
	switch {
	case q.now != 0:
		now = time.UnixMicro(int64(q.now))
	case b.now != nil:
		now = b.now()
	}
	calendar, _ := limits.CalendarOf(&q.limit) // of a zone that is not known, as List may find one, that of UTC
	start, end := calendar.Window(now)
	to = append(strconv.AppendInt(to, start.UnixMicro(), 10), '~')
	return strconv.AppendInt(to, end.UnixMicro(), 10)
}

// appendCalendar appends what tells calendars apart: unit, start day and zone.
func appendCalendar(to []byte, l *window.Limit) []byte {
	of := limits.Identity(l)
	to = append(strconv.AppendUint(to, uint64(of.Calendar), 10), ',')
	to = append(strconv.AppendUint(to, uint64(of.StartDay), 10), ',')
	return append(to, of.Zone...)
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
