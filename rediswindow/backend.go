package rediswindow

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	// MaxCount is the largest limit, increment and count that the backend accepts: 2^53-1. A
	// count that increments take beyond it stays at 2^53, which exceeds every limit.
	MaxCount = 1<<53 - 1
	// MaxScale is the longest scale that the backend accepts: 142 years.
	MaxScale = maxTime * time.Microsecond

	// maxTime bounds the times, in microseconds, that scripts compute with. The sum of two of
	// them is exact in a double. The bound is reached in the year 2112.
	maxTime = 1 << 52
)

var (
	// ErrScale says that a scale is less than 1 ms, not a whole number of microseconds, which
	// is the resolution of time in Redis, or more than [MaxScale]. It is [window.ErrScale].
	ErrScale = window.ErrScale
	// ErrRange says that a limit, an increment or a count is over [MaxCount], the largest
	// number that scripts count exactly, or that the clock of [WithClock] is more than 142
	// years away from 1970. It is [window.ErrRange].
	ErrRange = window.ErrRange
)

// Backend is a [window.Backend] on Redis. Make one with [New].
type Backend struct {
	options
	client   Client
	rolling  rolling          // nil: the algorithm has windows
	suffix   string           // of the names of hashes
	combiner func() *combiner // of hits; nil: each has a request of its own
	gate     *gate            // of requests that are not shared
}

var (
	_ window.Backend = (*Backend)(nil)
	_ window.Taker   = (*Backend)(nil)
)

// New returns a backend that keeps its windows on the server or cluster of client. The caller
// still owns the client, may use it for other things, and closes it. New panics if client or an
// option is nil.
func New(client Client, opts ...Option) *Backend {
	if client == nil {
		panic("rediswindow: New: client is nil")
	}
	b := &Backend{options: newOptions(opts), client: client}
	b.gate = newGate(b.maxQueued)
	if b.rolling = rollingOf(&b.options); b.rolling != nil {
		b.suffix = b.rolling.scripts().suffix
	} else if !b.single {
		b.combiner = sync.OnceValue(b.newCombiner)
	}
	return b
}

// Algorithm implements [window.Teller].
func (b *Backend) Algorithm() window.Algorithm { return b.algorithm }

// Hit implements [window.Backend]. Every hit is counted, unless the algorithm is a rolling one. The error matches that of ctx,
// [ErrScale] or [ErrRange], or it is an error of the client.
func (b *Backend) Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (window.Window, error) {
	if b.rolling != nil {
		w, err := b.hitRolling(ctx, key, scale, limit, increment)
		return w, failed("hit", key, err)
	}
	w, err := b.count(ctx, key, scale, limit, increment)
	return w, failed("hit", key, err)
}

// Inc implements [window.Backend]. Its errors are those of Hit.
func (b *Backend) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (window.Window, error) {
	w, err := b.count(ctx, key, scale, 0, increment)
	return w, failed("inc", key, err)
}

// Set implements [window.Backend]. Its errors are those of Hit.
func (b *Backend) Set(ctx context.Context, key string, scale time.Duration, count uint64) (window.Window, error) {
	w, err := b.set(ctx, key, scale, count)
	return w, failed("set", key, err)
}

// Get implements [window.Backend]. Its errors are those of Hit.
func (b *Backend) Get(ctx context.Context, key string, scale time.Duration) (window.Window, error) {
	w, err := b.read(ctx, key, scale)
	return w, failed("get", key, err)
}

// Reset implements [window.Backend]. Its errors are those of Hit.
func (b *Backend) Reset(ctx context.Context, key string, scale time.Duration) error {
	if b.rolling != nil {
		_, err := b.delete(ctx, key, []time.Duration{scale})
		return failed("reset", key, err)
	}
	field, err := fieldOf(scale)
	if err == nil {
		_, err = do(ctx, b, b.name(key), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, b.client.HDel(ctx, b.name(key), field)
		})
	}
	return failed("reset", key, err)
}

// Delete implements [window.Backend]. Without scales it deletes the windows of all scales,
// whichever client opened them. It deletes them in one atomic step. Its errors are those of Hit.
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	n, err := b.delete(ctx, key, scales)
	return n, failed("delete", key, err)
}

// count adds increment to the active window, or opens one.
func (b *Backend) count(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (w window.Window, err error) {
	if err := checkScale(scale); err != nil {
		return w, err
	}
	if err := checkCount("limit", limit); err != nil {
		return w, err
	}
	if err := checkCount("increment", increment); err != nil {
		return w, err
	}
	if b.rolling != nil {
		return b.countRolling(ctx, key, scale, increment, false)
	}
	return b.add(ctx, key, scale, increment)
}

// set opens a window with a count.
func (b *Backend) set(ctx context.Context, key string, scale time.Duration, count uint64) (w window.Window, err error) {
	field, err := fieldOf(scale)
	if err != nil {
		return w, err
	}
	if err := checkCount("count", count); err != nil {
		return w, err
	}
	if b.rolling != nil {
		return b.countRolling(ctx, key, scale, count, true)
	}
	now, err := b.time()
	if err != nil {
		return w, err
	}
	return b.window(ctx, setScript, key, scale, field, now, b.aligned(), b.grace(), strconv.FormatUint(count, 10), newID())
}

func (b *Backend) read(ctx context.Context, key string, scale time.Duration) (window.Window, error) {
	field, err := fieldOf(scale)
	if err != nil {
		return window.Window{}, err
	}
	now, err := b.time()
	if err != nil {
		return window.Window{}, err
	}
	if b.rolling != nil {
		return b.readRolling(ctx, key, field, scale, now)
	}
	return b.window(ctx, getScript, key, scale, field, now)
}

func (b *Backend) delete(ctx context.Context, key string, scales []time.Duration) (int, error) {
	now, err := b.time()
	if err != nil {
		return 0, err
	}
	s, args := deleteScript, append(make([]string, 0, 2+len(scales)), now)
	if b.rolling != nil {
		s, args = b.rolling.scripts().delete, append(args, b.grace())
	}
	for _, scale := range scales {
		field, err := fieldOf(scale)
		if err != nil {
			return 0, err
		}
		args = append(args, field)
	}
	deleted, err := b.run(ctx, s, []string{b.name(key)}, args)
	if err != nil || len(deleted) == 0 {
		return 0, err
	}
	return int(deleted[0]), nil
}

// window runs a script that returns a window or nothing. The response is count, start, time, last
// update and ID.
func (b *Backend) window(ctx context.Context, s *script, key string, scale time.Duration, args ...string) (window.Window, error) {
	response, err := b.run(ctx, s, []string{b.name(key)}, args)
	if err != nil || len(response) == 0 {
		return window.Window{}, err
	}
	if len(response) != 5 {
		return window.Window{}, fmt.Errorf("script returned %v", response)
	}
	return describe(scale, response[0], response[1], response[2], response[3], response[4]), nil
}

// describe returns a window of the given scale. Times are in microseconds since 1970.
func describe(scale time.Duration, count, start, now, updated, id int64) window.Window {
	end := start + scale.Microseconds()
	return window.Window{
		Count:     uint64(count),
		ExpiresAt: time.UnixMicro(end),
		Left:      time.Duration(end-now) * time.Microsecond,
		StartedAt: time.UnixMicro(start),
		UpdatedAt: time.UnixMicro(updated),
		ID:        id,
	}
}

// time returns the time argument of a script: empty for the time of the server.
func (b *Backend) time() (string, error) {
	if b.now == nil {
		return "", nil
	}
	now := b.now()
	micros := now.UnixMicro()
	if micros < -maxTime || micros > maxTime {
		return "", fmt.Errorf("%w: the time of the clock is %v", ErrRange, now.Round(0))
	}
	return strconv.FormatInt(micros, 10), nil
}

// grace returns how many milliseconds after the end of its last window a hash expires. Redis may
// read its clock more than once during a script, and the clock of [WithClock] may be late.
func (b *Backend) grace() string {
	if b.now != nil {
		return "3600000"
	}
	return "1000"
}

// aligned returns the argument of a script that says whether windows are aligned.
func (b *Backend) aligned() string {
	if b.algorithm == window.Aligned {
		return "1"
	}
	return "0"
}

// fieldOf returns the name of the field of a scale.
func fieldOf(scale time.Duration) (string, error) {
	if err := checkScale(scale); err != nil {
		return "", err
	}
	return strconv.FormatInt(scale.Microseconds(), 10), nil
}

func checkScale(scale time.Duration) error {
	if err := window.CheckScale(scale); err != nil {
		return err
	}
	if scale%time.Microsecond != 0 {
		return fmt.Errorf("%w: %v is not a whole number of microseconds", ErrScale, scale)
	}
	if scale > MaxScale {
		return fmt.Errorf("%w: %v is more than %v", ErrScale, scale, MaxScale)
	}
	return nil
}

func checkCount(name string, n uint64) error {
	if n > MaxCount {
		return fmt.Errorf("%w: %s %d is over 2^53-1", ErrRange, name, n)
	}
	return nil
}

// failed adds the method and the key, cut to 64 characters, to an error. It returns nil for nil.
func failed(method, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rediswindow: %s %.64q: %w", method, key, err)
}
