package rediswindow

import (
	"fmt"
	"strings"
	"time"

	"github.com/throttr-go/throttr/window"
)

// DefaultPrefix is the default of [WithPrefix].
const DefaultPrefix = "throttr:"

// Option is an option of [New].
type Option func(*options)

type options struct {
	prefix    string
	algorithm window.Algorithm
	now       func() time.Time // nil: the time of the server
}

func newOptions(opts []Option) options {
	o := options{prefix: DefaultPrefix}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("redisbackend: New: option %d is nil", i+1))
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

// WithAlgorithm sets when windows open and end. All backends that share windows must have the
// same algorithm. Default: [window.PerKey].
func WithAlgorithm(a window.Algorithm) Option { return func(o *options) { o.algorithm = a } }

// WithClock makes the backend read the time from now, in microseconds, which must be safe for
// concurrent use. It is meant for tests. Windows are only exact if the clocks of all backends that
// share them agree, and Redis removes a window one hour after its end by the clock of Redis, even
// if now stands still. Default: the time of the Redis server. WithClock panics if now is nil.
func WithClock(now func() time.Time) Option {
	if now == nil {
		panic("redisbackend: WithClock: now is nil")
	}
	return func(o *options) { o.now = now }
}
