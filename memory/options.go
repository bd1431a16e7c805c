package memory

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/window"
)

// DefaultMaxKeys is the default of [WithMaxKeys].
const DefaultMaxKeys = 1 << 20

// Option is an option of [New].
type Option func(*options)

type options struct {
	now          func() time.Time // nil: the system's clock
	cleanPeriod  time.Duration
	keyOlderThan time.Duration
	maxKeys      int
	beforeDrop   func([]window.Listed)
	maxLog       uint64
}

// WithClock makes the backend read the time from now. The function must be safe for concurrent use and fast, and must
// neither panic nor use the backend. If its time goes back by up to a scale, windows do not change, but for sliding
// logs: these have forgotten what a call, also a Peek, has found to be over. If it goes back by more, those that are
// ahead start at the present time, with what they have counted. Only the time of day counts. A time that is set by
// more than 292 years may look as if it was set the other way.
//
// Default: the system's clock. Its monotonic time takes half as long to read as [time.Now], so the
// wall clock is read once a second. If it is set, the times of day in results are wrong for a
// little more than a second, and aligned and sliding windows follow it then.
func WithClock(now func() time.Time) Option { return func(o *options) { o.now = now } }

// WithCleanPeriod sets the interval at which windows that are over are removed. They are also removed to
// make room for new keys. Default, and with 0: one minute. It panics if d is negative.
func WithCleanPeriod(d time.Duration) Option {
	api.NotNegative("memory: WithCleanPeriod", d)
	return func(o *options) { o.cleanPeriod = d }
}

// WithKeyOlderThan makes cleanings keep each window for d after its end, so that
// [WithBeforeDrop] sees it later. Until then it counts as a key, but it is removed earlier if a
// new key needs the room. Default: 0. It panics if d is negative.
func WithKeyOlderThan(d time.Duration) Option {
	api.NotNegative("memory: WithKeyOlderThan", d)
	return func(o *options) { o.keyOlderThan = d }
}

// WithMaxKeys bounds the number of windows, one for each key and name, scale and algorithm of a limit, and so the
// memory. A window takes 150 to 160 bytes if its key and the name of its limit have up to 27 bytes together. Only a
// digest is stored of a key longer than 128 bytes.
//
// With n of 2048 and more, a hash spreads the windows over up to 256 shards, and each shard
// has its share of n. The first shard can be full when there are nine tenths of n windows. Default, and with
// 0: [DefaultMaxKeys]. It panics if n is negative.
//
// If there is no room for a new key, some windows are looked at, others each time, and those that are over are removed.
// If none is, the key is denied as if its limit was used up, with a RetryAfter of [WithCleanPeriod]; Charge and Set
// fail with [window.ErrFull]. Keys that have a window are not affected. So an attacker who makes up keys can cause new
// keys to be denied, but can't reset a count.
func WithMaxKeys(n int) Option {
	api.NotNegative("memory: WithMaxKeys", n)
	return func(o *options) { o.maxKeys = n }
}

// WithBeforeDrop makes every cleaning call f with the windows that it has removed, some at a time, each window once.
// A goroutine of the backend or the caller of [Backend.Clean] makes the call. It holds no lock that calls need. f
// must not call [Backend.Close], which waits for it. The Window is that of the end: its Left is 0 or less. Windows
// that are removed to make room for a new key, or that a hit, Set, Reset or Close ends, are not given to f.
func WithBeforeDrop(f func([]window.Listed)) Option { return func(o *options) { o.beforeDrop = f } }

const (
	// DefaultMaxLog is the default of [WithMaxLog].
	DefaultMaxLog = 10_000
	// maxLogged is the largest Max of a sliding log: four times as many times fit 31 bits.
	maxLogged = 1<<29 - 1
	// timesPerKey is for how many times all sliding logs have room, for each of MaxKeys.
	timesPerKey = 16
)

// WithMaxLog sets the largest Max of a sliding log, which is also how many hits [Backend.Charge]
// and [Backend.Set] count at most. A larger one is a [*window.RangeError]. Default, and with 0:
// [DefaultMaxLog]. It panics if n is more than 2^29-1.
//
// The number of times that all sliding logs together have room for is bounded, too, to 16 for each of [WithMaxKeys]. A
// time takes 16 bytes, and a log has room for up to four times as many as it needs, and for what it has needed until
// cleanings have made it smaller. Takes at the same time need one. Each shard has its share, but has room for the log
// of one key with the largest limit. If there is no room, a hit that needs some is denied as one of a new key is; its
// RetryAfter is at most the time until its log is empty.
func WithMaxLog(n uint64) Option {
	if n > maxLogged {
		panic(fmt.Sprintf("memory: WithMaxLog: %d is more than %d", n, maxLogged))
	}
	return func(o *options) { o.maxLog = n }
}

func init() { window.Register("memory", open) }

// errURL does not have the URL, which may have been meant for another store, with a password.
var errURL = fmt.Errorf("%w: memory: a URL is memory://, with max_keys=N or lazy=true as parameters", window.ErrConfig)

// open opens a backend for a URL such as memory://?max_keys=100000.
func open(_ context.Context, rawURL string) (window.BackendCloser, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host != "" || u.User != nil || u.Path != "" || u.Fragment != "" {
		return nil, errURL
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	maxKeys := 0
	for name, values := range parameters {
		switch {
		case err != nil || len(values) > 1:
			return nil, errURL
		case name == "max_keys":
			maxKeys, err = strconv.Atoi(values[0])
		case name == "lazy": // there is nothing to connect to
			_, err = strconv.ParseBool(values[0])
		default:
			err = errURL
		}
	}
	if err != nil || maxKeys < 0 {
		return nil, errURL
	}
	return New(WithMaxKeys(maxKeys)), nil
}
