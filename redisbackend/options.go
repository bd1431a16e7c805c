package redisbackend

import (
	"strings"
	"time"

	"github.com/throttr-go/throttr/window"
)

// DefaultPrefix begins the names of the backend's keys in Redis unless told otherwise.
const DefaultPrefix = "throttr:"

// Option changes how a backend works.
type Option func(*options)

type options struct {
	prefix    string
	algorithm window.Algorithm
	now       func() time.Time
}

// WithPrefix sets what the names of the backend's keys in Redis begin with. Backends with
// different prefixes share no window, whatever the prefixes and the keys. An opening brace
// in it is written %7B, and a percent sign %25. Default: [DefaultPrefix].
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = escape.Replace(prefix) } }

// A name has its first opening brace right after the prefix, so that Redis takes the hash
// tag from what follows, and no prefix and key together look like another prefix and key.
var escape = strings.NewReplacer("%", "%25", "{", "%7B")

// WithAlgorithm sets when windows open and end. Backends that share windows must all have
// the same. Default: [window.PerKey].
func WithAlgorithm(a window.Algorithm) Option { return func(o *options) { o.algorithm = a } }

// WithClock has the backend read the time from now, which must be safe for concurrent
// use, and drops what is below a microsecond. It is for tests: a window is exact only as
// far as the clocks of all who share it agree, and it may be gone an hour after its end
// by Redis' clock, even if now stands still. Default: the time of the Redis server.
func WithClock(now func() time.Time) Option { return func(o *options) { o.now = now } }
