package memory

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// DefaultMaxKeys is how many windows a backend keeps unless told otherwise.
const DefaultMaxKeys = 1 << 20

// Overflow is what happens to a further key when there are MaxKeys windows. Windows that
// are over make room first. Where they are very few, they may be overlooked for a moment,
// under a second for a MaxKeys of a million.
type Overflow uint8

const (
	// Refuse has the hit fail with [ErrFull] until a window ends. Somebody who invents
	// keys can then have new keys refused, but can't get rid of a count. Keys that have a
	// window are served as ever. The default.
	Refuse Overflow = iota
	// Evict drops the window with the fewest hits, of a few picked at random. Every key is
	// let in then, but some are allowed more than the limit: by one or two hits, as a
	// rule, if it is invented keys that come; by as many as somebody likes who can hit
	// that many keys to the limit.
	Evict
)

// Dropped is a window that is removed, as it last was.
type Dropped struct {
	Key    string        // if it is over 128 bytes long: a hash of it
	Scale  time.Duration // how long the window was
	Window window.Window // Left is 0 or less
}

// Option changes how a backend works.
type Option func(*options)

type options struct {
	clock        func() time.Time
	cleanPeriod  time.Duration
	keyOlderThan time.Duration
	maxKeys      int
	overflow     Overflow
	beforeDrop   func([]Dropped)
	algorithm    window.Algorithm
}

// WithClock has the backend read the time from now, which must be safe for concurrent use,
// quick, not panic, and make no use of the backend. Should it go back, windows stay as they
// are, and those that lie more than a scale ahead are over.
//
// Default: the system's clock. Per-key windows go by the monotonic one, which takes half as
// long to read as [time.Now]; the wall clock is read once a second, to tell times by. So when
// that is set, the times that are told are off by as much for a little over a second. Of a
// RateLimit without an observer and a timeout, most hits that are allowed read no clock at
// all: the UpdatedAt that a window tells then is some 0.1 s early.
func WithClock(now func() time.Time) Option { return func(o *options) { o.clock = now } }

// WithCleanPeriod sets how often windows that are over are removed; 0 or less: never, only
// where a further key needs the room. Default: one minute.
func WithCleanPeriod(d time.Duration) Option { return func(o *options) { o.cleanPeriod = d } }

// WithKeyOlderThan has cleanings keep windows for some time after their end, for
// [WithBeforeDrop] to see them later. They still count as keys, and go earlier where a
// further key needs the room. Default: 0.
func WithKeyOlderThan(d time.Duration) Option { return func(o *options) { o.keyOlderThan = d } }

// WithMaxKeys bounds the number of windows, one for each key and scale, and so the memory:
// 80 to 100 bytes for each with a key of up to 27 bytes, and 260 for the longest, as of a key
// over 128 bytes a hash is kept. What windows leave is for keys of about the same length,
// until a cleaning finds most of it empty: so if keys of different lengths come one after
// the other, up to 700 bytes are held for each.
//
// From 2048 up, windows are spread over up to 256 shards by a hash, and each has its share:
// the first can be full at nine tenths of n. Less than 1: the default, [DefaultMaxKeys].
func WithMaxKeys(n int) Option {
	return func(o *options) {
		if o.maxKeys = n; n < 1 {
			o.maxKeys = DefaultMaxKeys
		}
	}
}

// WithOverflow sets what happens to a further key when there are MaxKeys windows. Default:
// [Refuse].
func WithOverflow(v Overflow) Option { return func(o *options) { o.overflow = v } }

// WithBeforeDrop has f see the windows that a cleaning removes, after they have been taken
// out and before they are dropped: each once, up to 128 at a time. It is called without a
// lock, by the backend's goroutine or by the caller of [Backend.Clean], and must not call
// [Backend.Close], which waits for it. What makes room for a further key is not shown, nor
// what a hit, Set, Reset or Close puts an end to.
func WithBeforeDrop(f func([]Dropped)) Option { return func(o *options) { o.beforeDrop = f } }

// WithAlgorithm sets when windows open and end. Default: [window.PerKey].
func WithAlgorithm(a window.Algorithm) Option { return func(o *options) { o.algorithm = a } }
