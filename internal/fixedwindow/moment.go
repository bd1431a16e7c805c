package fixedwindow

import "time"

// moment is a time by two clocks. Guards are measured by the backend's [steady]. The ends of windows, as
// users see them, are times of the backend's clock, which can be another one, such as the virtual
// clock of a test.
type moment struct {
	mono, clock time.Time
}

// at returns the moment of an earlier time of the clock of guards.
func (m moment) at(mono time.Time) moment {
	return moment{mono, m.clock.Add(mono.Sub(m.mono))}
}

// span is the time of a request: from before it was sent until its replies had arrived.
type span struct {
	from, to moment
}

// moment returns the present moment, given what the backend's clock shows.
func (b *Backend[T]) moment(now time.Time) moment {
	if b.guards != nil {
		return moment{b.guards.Now(), now}
	}
	return moment{now, now}
}
