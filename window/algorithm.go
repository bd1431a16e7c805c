package window

import "github.com/throttr-go/throttr/internal/api"

// Algorithm is how a limit counts. The zero Algorithm is that of the RateLimit, see throttr.WithAlgorithm.
type Algorithm uint8

const (
	// FixedWindow opens a window with the key's first hit and ends it one scale later. From the start
	// to the end of a window, at most Max are allowed. The windows of different keys end at different
	// times.
	FixedWindow Algorithm = iota + 1
	// AlignedWindow starts windows at multiples of the scale since 1970 in UTC, for all keys at once:
	// windows of an hour end on the hour. Twice the Max may be allowed in a short time, just before and
	// just after the end of a window.
	AlignedWindow
	// TokenBucket gains Max tokens per Scale, continuously, and holds up to Burst. A take needs as many
	// tokens as its n. In any interval, at most Burst + interval·Max/Scale are allowed. If Max or Burst
	// changes, the bucket lacks as many tokens as before: what is owed stays owed.
	TokenBucket
	// SlidingWindow estimates what was counted in the last scale: the present aligned window, and the
	// one before, weighted by how much of it lies in the last scale. In one scale, up to twice the Max
	// less one can be allowed in the worst case: with a Max of 100, 100 just before the end of an aligned
	// window, and then 99 while their weight falls to 1.
	SlidingWindow
	// SlidingLog remembers the time of everything that was allowed. In any interval of one scale, at most
	// Max are allowed. It takes memory in proportion to Max.
	SlidingLog
	// CalendarWindow is the algorithm of limits with a [Calendar], and of no others: windows are the days, weeks,
	// months or years of a zone's calendar, and each ends where the next one starts. Around that, twice the Max may
	// be allowed in a short time, as with AlignedWindow.
	CalendarWindow
)

var algorithmTexts = api.Texts{Kind: "algorithm", Err: ErrUnsupported, Texts: []string{"", "fixed-window",
	"aligned-window", "token-bucket", "sliding-window", "sliding-log", "calendar-window"}}

// String returns the text of the algorithm, such as "fixed-window". The text of 0 is empty.
func (a Algorithm) String() string { return algorithmTexts.String(uint8(a)) }

// MarshalText returns the text of the algorithm. It implements [encoding.TextMarshaler]. The error
// matches [ErrUnsupported] if the algorithm is unknown.
func (a Algorithm) MarshalText() ([]byte, error) { return algorithmTexts.Marshal(uint8(a)) }

// UnmarshalText sets the algorithm to the one with the given text. It implements
// [encoding.TextUnmarshaler]. The error matches [ErrUnsupported] if there is none.
func (a *Algorithm) UnmarshalText(text []byte) error {
	return algorithmTexts.Unmarshal((*uint8)(a), text)
}

// Rolling reports whether a has no windows that end at a time: TokenBucket, SlidingWindow, SlidingLog.
// Room comes back bit by bit, and what they deny never counts. What [Backend] says about windows applies
// to them as follows:
//   - Hit decides as Take.
//   - Count is rounded up to a whole number, so n is granted if Count is at most what the limit holds
//     less n. It falls as time passes. Calls can return the same Count.
//   - ExpiresAt is when the count is 0 if nobody calls: then there is no active window. Nothing opens a
//     window with a count of 0, and one whose count falls to 0 ends.
//   - The ID that a take returns identifies the take, and not the window. The ID that other methods
//     return identifies nothing.
//   - Set forgets what was counted, and counts n now. A backend may store fewer than n, but not fewer
//     than what the limit holds.
//   - GiveBack gives back what the take still takes up: as if n fewer had been taken, but never what has
//     come back by itself since. A token bucket may give less back, or return false, if other takes have
//     been given back since the take.
func (a Algorithm) Rolling() bool { return a == TokenBucket || a == SlidingWindow || a == SlidingLog }
