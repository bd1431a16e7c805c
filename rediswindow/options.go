package rediswindow

import (
	"cmp"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/api"
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
	maxLog    uint64           // the largest limit of sliding logs
	maxQueued int              // calls that wait for a request
	now       func() time.Time // nil: the time of the server
}

// WithPrefix sets the prefix of the names of the backend's keys in Redis. Backends with different
// prefixes never share a window, whatever the prefixes and the keys are. In the names, an opening
// brace of the prefix is written %7B, and a percent sign %25. Default: [DefaultPrefix].
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = escape.Replace(prefix) } }

// escape ensures that the first opening brace of a name follows the prefix. Redis then finds the
// hash tag there, and no two pairs of prefix and key have the same name.
var escape = strings.NewReplacer("%", "%25", "{", "%7B")

// WithMaxLog sets the largest Max of limits with the algorithm [window.SlidingLog]. A key takes up to
// some 10 bytes of Redis for each hit of its limit. A larger Max is a [window.RangeError], and Charge and
// Set count no more than n. Default, also for 0: [DefaultMaxLog].
func WithMaxLog(n uint64) Option {
	return func(o *options) { o.maxLog = min(cmp.Or(n, DefaultMaxLog), 1<<30) }
}

// WithMaxQueued sets how many calls can be queued, in a cluster for each node, while Redis does not respond. Further
// ones fail with [window.ErrOverloaded]. WithMaxQueued panics if n is negative. Default, also for 0:
// [DefaultMaxQueued].
func WithMaxQueued(n int) Option {
	api.NotNegative("rediswindow: WithMaxQueued", n)
	return func(o *options) { o.maxQueued = cmp.Or(n, DefaultMaxQueued) }
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
