package rediswindow

import (
	"fmt"
	"strings"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	// DefaultPrefix is the default of [WithPrefix].
	DefaultPrefix = "throttr:"
	// DefaultMaxLog is the default of [WithMaxLog].
	DefaultMaxLog = 10_000
	// DefaultMaxQueued is the default of [WithMaxQueued].
	DefaultMaxQueued = 100_000
)

// Option is an option of [New].
type Option func(*options)

type options struct {
	prefix    string
	algorithm window.Algorithm
	maxLog    uint64           // the largest limit of sliding logs
	single    bool             // each hit has a request of its own
	maxQueued int              // hits that wait for a request, and other calls that do
	now       func() time.Time // nil: the time of the server
}

func newOptions(opts []Option) options {
	o := options{prefix: DefaultPrefix, maxLog: DefaultMaxLog, maxQueued: DefaultMaxQueued}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("rediswindow: New: option %d is nil", i+1))
		}
		opt(&o)
	}
	return o
}

// WithPrefix sets the prefix of the names of the backend's keys in Redis. Backends with different
// prefixes never share a window, whatever the prefixes and the keys are. In the names, an opening
// brace of the prefix is written %7B, and a percent sign %25. Default: [DefaultPrefix].
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = escape.Replace(prefix) } }

// escape ensures that the first opening brace of a name follows the prefix. Redis then finds the
// hash tag there, and no two pairs of prefix and key have the same name.
var escape = strings.NewReplacer("%", "%25", "{", "%7B")

// WithAlgorithm sets how hits are counted. Backends with the same prefix must have the same algorithm
// to share what they count, and do not disturb each other if they have not, except that [window.PerKey]
// and [window.Aligned] share their windows. WithAlgorithm panics if there is no algorithm a. Default:
// [window.PerKey].
func WithAlgorithm(a window.Algorithm) Option {
	if a > window.SlidingLog {
		panic(fmt.Sprintf("rediswindow: WithAlgorithm: %d is no algorithm", a))
	}
	return func(o *options) { o.algorithm = a }
}

// WithMaxLog sets the largest limit of backends with the algorithm [window.SlidingLog]. A key takes up to
// some 10 bytes of Redis for each hit of its limit. A larger limit is a [window.RangeError], and Inc and
// Set count no more than n. WithMaxLog panics if n is 0. Default: [DefaultMaxLog].
func WithMaxLog(n uint64) Option {
	if n == 0 {
		panic("rediswindow: WithMaxLog: n is 0")
	}
	return func(o *options) { o.maxLog = min(n, 1<<30) }
}

// WithoutCoalescing gives each hit a request of its own. By default, hits at one time share requests,
// as the package documentation describes.
func WithoutCoalescing() Option { return func(o *options) { o.single = true } }

// WithMaxQueued sets how many hits can be queued, while 8 requests are in flight and Redis has not responded,
// and how many other calls, while 256 are. Further ones fail with [ErrOverloaded]. WithMaxQueued panics if n
// is less than 1. Default: [DefaultMaxQueued].
func WithMaxQueued(n int) Option {
	if n < 1 {
		panic("rediswindow: WithMaxQueued: n is less than 1")
	}
	return func(o *options) { o.maxQueued = n }
}

// WithClock makes the backend read the time from now, in microseconds, which must be safe for
// concurrent use. It is meant for tests. Windows are only exact if the clocks of all backends that
// share them agree, and Redis removes a window one hour after its end by the clock of Redis, even
// if now stands still. Default: the time of the Redis server. WithClock panics if now is nil.
func WithClock(now func() time.Time) Option {
	if now == nil {
		panic("rediswindow: WithClock: now is nil")
	}
	return func(o *options) { o.now = now }
}
