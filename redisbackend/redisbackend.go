package redisbackend

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

const (
	// MaxCount is the largest limit, increment and count that the backend accepts: 2^53-1.
	MaxCount = rediswindow.MaxCount
	// MaxScale is the longest scale that the backend accepts: 142 years.
	MaxScale = rediswindow.MaxScale
	// DefaultPrefix is the default of [WithPrefix].
	DefaultPrefix = rediswindow.DefaultPrefix
	// DefaultMaxLog is the default of [WithMaxLog].
	DefaultMaxLog = rediswindow.DefaultMaxLog
)

var (
	// ErrScale says that a backend can't keep windows of a scale. It is [window.ErrScale].
	ErrScale = rediswindow.ErrScale
	// ErrRange says that a number is too large for a backend. It is [window.ErrRange].
	ErrRange = rediswindow.ErrRange
	// ErrOverloaded says that too many calls are queued. It is [window.ErrOverloaded].
	ErrOverloaded = rediswindow.ErrOverloaded
)

// Backend is a [window.Backend] on Redis. Make one with [New].
type Backend = rediswindow.Backend

// Option is an option of [New].
type Option = rediswindow.Option

// New returns a backend that keeps its windows on the server or cluster of client. The caller
// still owns the client, may use it for other things, and closes it. New panics if client or an
// option is nil.
func New(client rueidis.Client, opts ...Option) *Backend {
	if client == nil {
		panic("redisbackend: New: client is nil")
	}
	return rediswindow.New(adapter{client}, opts...)
}

// WithPrefix sets the prefix of the names of the backend's keys in Redis, see
// [rediswindow.WithPrefix].
func WithPrefix(prefix string) Option { return rediswindow.WithPrefix(prefix) }

// WithAlgorithm sets how hits are counted, see [rediswindow.WithAlgorithm]. Default: [window.PerKey].
func WithAlgorithm(a window.Algorithm) Option { return rediswindow.WithAlgorithm(a) }

// WithMaxLog sets the largest limit of sliding logs, see [rediswindow.WithMaxLog]. It panics if n is 0.
func WithMaxLog(n uint64) Option { return rediswindow.WithMaxLog(n) }

// WithoutCoalescing gives each hit a request of its own, see [rediswindow.WithoutCoalescing].
func WithoutCoalescing() Option { return rediswindow.WithoutCoalescing() }

// WithMaxQueued sets how many calls can be queued, see [rediswindow.WithMaxQueued]. It panics if n is less than 1.
func WithMaxQueued(n int) Option { return rediswindow.WithMaxQueued(n) }

// WithClock makes the backend read the time from now, for tests, see [rediswindow.WithClock]. It
// panics if now is nil.
func WithClock(now func() time.Time) Option { return rediswindow.WithClock(now) }

// adapter is a [rediswindow.Client]. Its commands are neither declared read-only nor retryable: the
// primary must execute them, once.
type adapter struct{ client rueidis.Client }

// EvalSHA implements [rediswindow.Client].
func (a adapter) EvalSHA(ctx context.Context, digest string, keys, args []string) ([]int64, error) {
	numbers, err := a.client.Do(ctx, a.client.B().Evalsha().Sha1(digest).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).AsIntSlice()
	return numbers, closedError(err)
}

// Eval implements [rediswindow.Client].
func (a adapter) Eval(ctx context.Context, script string, keys, args []string) ([]int64, error) {
	numbers, err := a.client.Do(ctx, a.client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).AsIntSlice()
	return numbers, closedError(err)
}

// Cluster implements [rediswindow.Client].
func (a adapter) Cluster() bool { return a.client.Mode() == rueidis.ClientModeCluster }

// HDel implements [rediswindow.Client].
func (a adapter) HDel(ctx context.Context, key, field string) error {
	return closedError(a.client.Do(ctx, a.client.B().Hdel().Key(key).Field(field).Build()).Error())
}
