package algorithm

import "time"

// A calendar window starts and ends as the calendar of the call says. In its record,
//   - Start is when the window has started, or would, and More its length.
//   - Count is what it has counted. One of [window.Unlimited] may be more.
//   - ID is its series.
//
// A window that is open keeps its end.

var calendar = Algorithm{
	Wall:     true,
	look:     lookCalendar,
	left:     leftCalendar,
	wait:     func(r *Record, t Time, _ uint64) time.Duration { return leftCalendar(r, t) },
	add:      func(r *Record, _ Time, n, series uint64) { addFixed(r, r.Start, n, series) },
	giveBack: giveBackFixed,
}

func lookCalendar(r *Record, by Rule, t Time) uint64 {
	r.Rule = by
	length := time.Duration(r.More)
	passed := time.Duration(t.Now - r.Start)
	if r.ID != 0 && -length <= passed && passed < length {
		return r.Count
	}
	if r.ID != 0 && passed >= length {
		r.End()
	}
	if t.Calendar == nil {
		return r.Count
	}
	now := time.Unix(t.Sec, t.Nano)
	start, end := t.Calendar.Window(now)
	r.Start = t.Now - int64(now.Sub(start))
	r.More = uint64(end.Sub(start))
	return r.Count
}

func leftCalendar(r *Record, t Time) time.Duration {
	return rest(1, time.Duration(r.More), time.Duration(t.Now-r.Start))
}
