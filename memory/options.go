package memory

import (
	"fmt"
	"time"

	"github.com/throttr-go/throttr/window"
)

// DefaultMaxKeys is the default of [WithMaxKeys].
const DefaultMaxKeys = 1 << 20

// Overflow is what happens to a new key if there are MaxKeys windows. Windows that are over
// are removed first. If very few are over, they may be missed for a short time: less than a
// second with a MaxKeys of a million.
type Overflow uint8

const (
	// Share makes keys without a window share counts: a hash of the key selects one for each scale, and
	// all keys with this hash add to it until it is over, or until there is room again if the algorithm
	// is a rolling one. So no key is allowed more than its limit,
	// but keys may be denied for the hits of others. An attacker who makes up keys can cause new
	// keys to be denied, but can't reset a count. Keys that have a window are not affected.
	//
	// Set of a key that shares a count only makes it larger. Reset and Delete of such a key fail with
	// [ErrFull], as others count there. If it has a window of its own, they end that, and the key keeps its
	// place as long as there are no windows to remove that are over. A give-back gives back what the key has taken.
	//
	// There is a shared count for every 64 of MaxKeys and each scale, and at most a quarter of
	// MaxKeys for all scales: beyond that, a hit fails with ErrFull. That takes more than 16 scales.
	// The default.
	Share Overflow = iota
	// Evict removes the window with the fewest hits of a small random sample. No key is
	// refused, but some are allowed more than their limit. If the new keys are made up, that
	// is usually one or two hits more. An attacker that can hit many keys to their limit can
	// reset the count of any key. The hits of a token bucket are the tokens that it lacks, those of
	// a sliding log the times that it remembers. What is removed is forgotten: the key has its whole
	// limit again.
	Evict
)

// Dropped is a window that was removed, as it was last.
type Dropped struct {
	Key    string        // a hash of the key if it is longer than 128 bytes
	Scale  time.Duration // the length of the window
	Window window.Window // Left is 0 or less
}

// Option is an option of [New].
type Option func(*options)

type options struct {
	clock        func() time.Time
	cleanPeriod  time.Duration
	keyOlderThan time.Duration
	maxKeys      int
	overflow     Overflow
	beforeDrop   func([]Dropped)
	algorithm    window.Algorithm
	maxLimit     uint64 // 0: the default
	maxTimes     int    // 0: the default
}

// WithClock makes the backend read the time from now. The function must be safe for concurrent
// use and fast, and must neither panic nor use the backend. If its time goes back, windows do
// not change, except that those that start more than a scale in the future are over.
//
// Default: the system's clock. Its monotonic time takes half as long to read as [time.Now], so the
// wall clock is read once a second. If it is set, the times of day in results are wrong for a
// little more than a second, and aligned and sliding windows follow it then. If a RateLimit has neither an
// observer nor a timeout, most of the hits that it allows read no clock at all: the UpdatedAt
// of their windows is up to 0.1 s early. UpdatedAt is also rounded down, by less than a 2^31st of
// the scale.
func WithClock(now func() time.Time) Option { return func(o *options) { o.clock = now } }

// WithCleanPeriod sets the interval at which windows that are over are removed. With 0 or
// less, they are only removed to make room for new keys. Default: one minute.
func WithCleanPeriod(d time.Duration) Option { return func(o *options) { o.cleanPeriod = d } }

// WithKeyOlderThan makes cleanings keep each window for d after its end, so that
// [WithBeforeDrop] sees it later. Until then it counts as a key, but it is removed earlier if a
// new key needs the room. Default: 0.
func WithKeyOlderThan(d time.Duration) Option { return func(o *options) { o.keyOlderThan = d } }

// WithMaxKeys bounds the number of windows, one for each key and scale, and so the memory. A
// window takes 80 to 100 bytes if its key has up to 27 bytes, and at most 260, as only a hash
// is stored of a key longer than 128 bytes. The memory of a removed window is used again for
// keys of about the same length, until a cleaning finds it mostly unused. So if keys of
// different lengths come one after the other, up to 700 bytes are held per window.
//
// With n of 2048 and more, a hash spreads the windows over up to 256 shards, and each shard
// has its share of n. The first shard can be full when there are nine tenths of n windows. If n
// is less than 1, it is the default, [DefaultMaxKeys].
//
// If all are in use, new keys share counts, see [Share]. A shared count takes up to 240 bytes, in
// addition: all of a scale together take as much as n/25 windows.
func WithMaxKeys(n int) Option {
	return func(o *options) {
		if o.maxKeys = n; n < 1 {
			o.maxKeys = DefaultMaxKeys
		}
	}
}

// WithOverflow sets what happens to a new key if there are MaxKeys windows. Default: [Share].
func WithOverflow(v Overflow) Option { return func(o *options) { o.overflow = v } }

// WithBeforeDrop makes every cleaning call f with the windows that it has removed, up to 128 at
// a time, each window once. The backend's goroutine or the caller of [Backend.Clean] makes the
// call. It holds no lock. f must not call [Backend.Close], which waits for it. Windows that are
// removed to make room for a new key, or that a hit, Set, Reset or Close ends, and shared counts,
// are not given to f.
func WithBeforeDrop(f func([]Dropped)) Option { return func(o *options) { o.beforeDrop = f } }

// WithAlgorithm sets how hits are counted. Default: [window.PerKey].
//
// A token bucket takes as much memory as a fixed window, and so does a sliding window, whose limit
// is at most 2^48-1. A sliding log also takes 64 bytes for every seven hits that it remembers, see
// [WithMaxLog] and [WithMaxTimes].
//
// WithAlgorithm panics if there is no such algorithm.
func WithAlgorithm(a window.Algorithm) Option {
	if a > window.SlidingLog {
		panic(fmt.Sprintf("memory: WithAlgorithm: there is no algorithm %d", a))
	}
	return func(o *options) { o.algorithm = a }
}

// DefaultMaxLog is the default of [WithMaxLog].
const DefaultMaxLog = 10_000

// WithMaxLog sets the largest limit of a sliding log, which is also how many hits [Backend.Inc]
// and [Backend.Set] count at most. Larger limits are a [*window.RangeError]. Other algorithms
// ignore it. If n is 0 or more than 2^29-1, it is the default, [DefaultMaxLog].
func WithMaxLog(n uint64) Option {
	return func(o *options) {
		if o.maxLimit = n; n > maxLogged {
			o.maxLimit = 0
		}
	}
}

// WithMaxTimes bounds the number of hits that all sliding logs together remember, and so their
// memory: it takes at most about 10 bytes for each if keys are hit often, and up to 64 bytes for
// each if a key is hit once. If there are so many, a hit that needs room is refused, and its RetryAfter is a
// scale at most; Inc and Set fail with [ErrFull]. With [Evict], it replaces other logs instead, those
// with the fewest hits of a sample. Each shard, see [WithMaxKeys], has
// its share of n, but has room for the log of one key with the largest limit. Other algorithms
// ignore it. If n is less than 1, it is the default, 16 times the number of keys.
func WithMaxTimes(n int) Option { return func(o *options) { o.maxTimes = max(n, 0) } }
