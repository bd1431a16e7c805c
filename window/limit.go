package window

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
)

const (
	// MinScale is the shortest scale. Shorter ones are a forgotten unit: a scale of 60 is 60 ns.
	MinScale = time.Millisecond
	// MaxScale is the longest scale: 146 years.
	MaxScale time.Duration = 1 << 62
	// Unlimited as a Max: every take is granted at once, and never counted.
	Unlimited uint64 = math.MaxInt64
	// Never as a RetryAfter: waiting does not help. Adding it to a time does not overflow.
	Never time.Duration = 1 << 62
)

// Limit is a rule: at most Max in a Scale, or in a unit of the Calendar. It has no key: one Limit is for any number of
// keys. A count belongs to the key and the limit's Name, Scale, Algorithm, Calendar, Zone and StartDay, not to Max and
// Burst.
type Limit struct {
	// Name tells limits of one key apart, also in events and header fields: at most 64 printable ASCII
	// characters.
	Name      string
	Max       uint64        // how much a window allows; what a token bucket gains per Scale; [Unlimited]
	Scale     time.Duration // the length of the window, from [MinScale] to [MaxScale]
	Burst     uint64        // what a token bucket holds; 0: Max. Other algorithms refuse it.
	Algorithm Algorithm     // 0: that of the RateLimit
	// Shadow makes the limit count, and deny nothing: observers are told what it would have denied. Neither
	// does it deny because the store is away. A RateLimit sees to that: backends never get a Shadow limit,
	// and its count is that of the same limit without Shadow.
	Shadow bool
	// Calendar is in place of a Scale: windows are the days, weeks, months or years of Zone's calendar, and the
	// Algorithm is [CalendarWindow].
	Calendar Calendar
	// StartDay is the day on which a Month starts, 1 to 31 (a shorter month starts on its last day), or a Week, 1
	// (Monday) to 7. 0: 1.
	StartDay uint8
	Zone     string // of a Calendar: an IANA name, as "Europe/Berlin"; "": UTC
}

// For returns the take of n for a key.
func (l Limit) For(key string, n uint64) Take { return Take{Key: key, Limit: l, N: n} }

// String formats the limit: "login: 5 in 1h0m0s, token bucket of 10".
func (l Limit) String() string {
	var s strings.Builder
	if l.Name != "" {
		s.WriteString(l.Name + ": ")
	}
	switch {
	case l.Max == Unlimited:
		s.WriteString("unlimited")
	case l.Calendar != 0:
		fmt.Fprintf(&s, "%d in a %v", l.Max, l.Calendar)
		if l.StartDay > 1 {
			fmt.Fprintf(&s, " from day %d", l.StartDay)
		}
		s.WriteString(" of " + cmp.Or(l.Zone, "UTC"))
	case l.Scale == 0: // of calls in flight
		fmt.Fprintf(&s, "%d at a time", l.Max)
	default:
		fmt.Fprintf(&s, "%d in %v", l.Max, l.Scale)
	}
	if l.Algorithm != 0 {
		s.WriteString(", " + strings.ReplaceAll(l.Algorithm.String(), "-", " "))
	}
	if l.Burst != 0 {
		fmt.Fprintf(&s, " of %d", l.Burst)
	}
	if l.Shadow {
		s.WriteString(", shadow")
	}
	return s.String()
}

// Take is N of a Limit for a key.
type Take struct {
	Key   string
	Limit Limit
	N     uint64 // at least 1
}
