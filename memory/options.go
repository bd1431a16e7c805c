package memory

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// DefaultMaxKeys is how many windows a backend keeps unless told otherwise.
const DefaultMaxKeys = 1 << 20

// Overflow is what happens to a further key when there are MaxKeys windows. Windows that
// are over make room in any case.
type Overflow uint8

const (
	// Refuse has the hit fail with [ErrFull] until a window ends. Somebody who invents
	// keys can then have new keys refused, but can't get rid of a count. The default.
	Refuse Overflow = iota
	// Evict drops the window that ends first, of a few picked at random. Every key is let
	// in then, but somebody who invents keys can have counts forgotten, and so be allowed
	// more than the limit.
	Evict
)

// Dropped is a window that is removed, as it last was.
type Dropped struct {
	Key    string
	Scale  time.Duration
	Window window.Window // Left is 0 or less
}

// Option changes how a backend works.
type Option func(*options)

type options struct {
	now          func() time.Time
	cleanPeriod  time.Duration
	keyOlderThan time.Duration
	maxKeys      int
	overflow     Overflow
	beforeDrop   func([]Dropped)
	algorithm    window.Algorithm
}

// WithClock has the backend read the time from now, which must be safe for concurrent
// use. Default: a clock that starts as the system's and never jumps; for aligned windows,
// the system's.
func WithClock(now func() time.Time) Option { return func(o *options) { o.now = now } }

// WithCleanPeriod sets how often windows that are over are removed; 0 or less: never, only
// where a further key needs the room. Default: one minute.
func WithCleanPeriod(d time.Duration) Option { return func(o *options) { o.cleanPeriod = d } }

// WithKeyOlderThan keeps windows for some time after their end, for [WithBeforeDrop] to see
// them later. Default: 0.
func WithKeyOlderThan(d time.Duration) Option { return func(o *options) { o.keyOlderThan = d } }

// WithMaxKeys bounds the number of windows. They are spread over up to 256 shards by a hash,
// and each has its share: the first can be full a little before all are. Less than 1: the
// default, [DefaultMaxKeys].
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
// out and before they are dropped. It is called from one goroutine, without a lock. What
// an overflow, a Reset or Close removes is not shown.
func WithBeforeDrop(f func([]Dropped)) Option { return func(o *options) { o.beforeDrop = f } }

// WithAlgorithm sets when windows open and end. Default: [window.PerKey].
func WithAlgorithm(a window.Algorithm) Option { return func(o *options) { o.algorithm = a } }
