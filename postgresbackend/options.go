package postgresbackend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/throttr-go/throttr/internal/api"
)

const (
	// DefaultTable is the default of [WithTable].
	DefaultTable = "throttr"
	// DefaultMaxQueued is the default of [WithMaxQueued].
	DefaultMaxQueued = 100_000
	// MaxLog is the largest Max of a sliding log: all of its times are written with each take.
	MaxLog = 1000
)

// Durability is what a crash of the server may lose.
type Durability string

const (
	// Async does not wait until the server has written to its disk: a crash loses the counts of some tenths of a
	// second, up to three times wal_writer_delay. A failover to a replica loses what that had not received.
	Async Durability = "async"
	// Full waits as the server's synchronous_commit says, so that by default a crash loses nothing.
	Full Durability = "full"
	// Unlogged makes an unlogged table: a crash of the server, or of one of its processes, empties it, and so does a
	// failover. It takes a tenth less time than Async.
	Unlogged Durability = "unlogged"
)

func (d Durability) known() bool { return d == Async || d == Full || d == Unlogged }

// Option is an option of [New] and [Schema].
type Option func(*options)

type options struct {
	table      string // quoted
	durability Durability
	maxQueued  int              // 0: DefaultMaxQueued
	now        func() time.Time // nil: the time of the server
	timeout    time.Duration    // of a call, and of a request
}

func newOptions(function string, opts []Option) options {
	o := options{table: pgx.Identifier{DefaultTable}.Sanitize(), durability: Async, timeout: timeout}
	api.Apply("postgresbackend: "+function, &o, opts)
	return o
}

// WithTable sets the name of the table, after that of its schema and a point if it is not in the search_path. Upper and
// lower case differ. Backends with different tables share no window. WithTable panics if a name is empty, has more
// than 63 bytes, which the server would cut, or a zero byte. Default, also for "": [DefaultTable].
func WithTable(name string) Option {
	table, ok := quote(cmp.Or(name, DefaultTable))
	if !ok {
		panic(fmt.Sprintf("postgresbackend: WithTable: %q is no name of 1 to 63 bytes", name))
	}
	return func(o *options) { o.table = table }
}

// quote quotes the name of a table, and that of its schema if it has one. It reports whether the server takes them as
// they are: it cuts a longer one.
func quote(name string) (quoted string, ok bool) {
	parts := strings.SplitN(name, ".", 2)
	ok = !slices.ContainsFunc(parts, func(part string) bool {
		return part == "" || len(part) > 63 || strings.ContainsRune(part, 0)
	})
	return pgx.Identifier(parts).Sanitize(), ok
}

// WithDurability sets what a crash may lose. All processes should set the same. An existing table stays as it is:
// whether it is unlogged is said by the statement that made it. Default: [Async]. WithDurability panics if d is none
// of the constants.
func WithDurability(d Durability) Option {
	if !d.known() {
		panic("postgresbackend: WithDurability: " + string(d) + " is none of async, full and unlogged")
	}
	return func(o *options) { o.durability = d }
}

// WithMaxQueued sets how many calls can be queued while the server does not respond, and as many again of those that
// take locks. Further ones fail with [window.ErrOverloaded]. WithMaxQueued panics if n is negative. Default, also for
// 0: [DefaultMaxQueued].
func WithMaxQueued(n int) Option {
	api.NotNegative("postgresbackend: WithMaxQueued", n)
	return func(o *options) { o.maxQueued = n }
}

// WithClock makes the backend read the time from now, which must be safe for concurrent use. It is meant for tests:
// windows are only exact if the clocks of all backends that share them agree. Such a backend deletes no rows, but
// others that use its table delete them by the time of the server. Default: the time of the server. WithClock panics if
// now is nil.
func WithClock(now func() time.Time) Option {
	if now == nil {
		panic("postgresbackend: WithClock: now is nil")
	}
	return func(o *options) { o.now = now }
}
