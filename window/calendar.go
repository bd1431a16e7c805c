package window

import "github.com/throttr-go/throttr/internal/api"

// Calendar is a unit of the calendar, for limits whose windows are days, weeks, months or years.
type Calendar uint8

// The units of the calendar. The zero Calendar is none: the limit has a Scale.
const (
	Day   Calendar = iota + 1 // from midnight to midnight: 23 or 25 hours when clocks change
	Week                      // from a Monday, or the day that StartDay is
	Month                     // from the first, or the day that StartDay is
	Year                      // from the first of January
)

var calendarTexts = api.Texts{Kind: "calendar unit", Err: ErrUnsupported,
	Texts: []string{"", "day", "week", "month", "year"}}

// String returns the text of the unit, such as "month". The text of 0 is empty.
func (c Calendar) String() string { return calendarTexts.String(uint8(c)) }

// MarshalText returns the text of the unit. It implements [encoding.TextMarshaler]. The error matches
// [ErrUnsupported] if the unit is unknown.
func (c Calendar) MarshalText() ([]byte, error) { return calendarTexts.Marshal(uint8(c)) }

// UnmarshalText sets the unit to the one with the given text. It implements [encoding.TextUnmarshaler].
// The error matches [ErrUnsupported] if there is none.
func (c *Calendar) UnmarshalText(text []byte) error {
	return calendarTexts.Unmarshal((*uint8)(c), text)
}
